// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaigns.h"
#include "cli/commands.h"
#include "cli/task_name.h"
#include "engine/store/store.h"
#include "specs/samples.h"
#include "steps/packed_output.h"
#include "steps/step.h"

namespace wflow::cli {

namespace {

struct LogsOptions {
  TaskArguments task;
  bool only_out = false;
  bool only_err = false;
};

void print_text(const std::string& bytes, const std::string& title) {
  if (bytes.empty()) return;
  if (!title.empty()) fmt::print("== {}\n", title);
  std::fflush(stdout);
  write_all(STDOUT_FILENO, bytes, "standard output");
  if (bytes.back() != '\n') fmt::print("\n");
}

void print_file(const std::filesystem::path& path, const char* title) {
  if (!std::filesystem::exists(path)) return;
  print_text(read_file(path), title == nullptr ? "" : fmt::format("{} {}", title, path.string()));
}

int print_packed(const LogsOptions& options, const std::filesystem::path& directory, specs::Element element) {
  const auto executions = steps::find_packed(directory, element);
  if (executions.empty()) {
    throw Error(ExitCode::data,
                fmt::format("{} has printed nothing, or has not ended yet: {} has no entry for it",
                            options.task.task(), directory.string()));
  }
  const bool titles = !options.only_out && !options.only_err;
  for (const steps::PackedExecution& execution : executions) {
    const auto title = [&](const char* what) {
      return titles ? fmt::format("{} of attempt {} (from {})", what, execution.entry.attempt,
                                  execution.log.string())
                    : std::string();
    };
    if (!options.only_err) print_text(steps::packed_out(execution), title("output"));
    if (!options.only_out) print_text(steps::packed_err(execution), title("errors"));
  }
  return 0;
}

int logs(const LogsOptions& options) {
  const auto campaign = find_campaign(options.task.campaign());
  const specs::Plan plan = read_plan(campaign);
  const TaskId task = find_task(plan, options.task.task());
  const specs::TaskTemplate task_template = plan.task_template(task.array);
  if (task_template.kind == specs::StepKind::shell && task_template.output == specs::OutputMode::packed) {
    return print_packed(options, steps::packed_directory(task_template.workspace), task.element);
  }
  std::unique_ptr<const specs::SampleTable> samples;
  if (plan.study().samples) samples = specs::open_samples(plan.study().samples->design);
  const auto step = steps::make_step(task_template, samples.get());
  const steps::PreparedTask prepared = step->prepare({task.element, 0, false});
  const std::filesystem::path folder = prepared.directory;
  const bool titles = !options.only_out && !options.only_err;
  if (!std::filesystem::exists(folder / prepared.out_file) &&
      !std::filesystem::exists(folder / prepared.err_file)) {
    throw Error(ExitCode::data, fmt::format("{} has not run yet: there is no {}", options.task.task(),
                                            (folder / prepared.out_file).string()));
  }
  if (!options.only_err) print_file(folder / prepared.out_file, titles ? "output" : nullptr);
  if (!options.only_out) print_file(folder / prepared.err_file, titles ? "errors" : nullptr);
  return 0;
}

}  // namespace

void add_logs(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "what a task printed");
  command->footer(
      "Examples:\n  wflow logs simulate/12\n  wflow logs campaigns/cosmoflow_20261121-160001 train --err");
  add_task_arguments(*command, options->task);
  command->add_flag("--out", options->only_out, "standard output only");
  command->add_flag("--err", options->only_err, "standard error only");
  command->callback([options, &chosen] { chosen = [options] { return logs(*options); }; });
}

}  // namespace wflow::cli
