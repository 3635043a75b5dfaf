// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/task_arguments.h"
#include "cli/campaign/task_output.h"
#include "cli/commands/commands.h"
#include "cli/view/follow.h"
#include "specs/plan/task_name.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

struct LogsOptions {
  TaskArguments task;
  bool only_out = false;
  bool only_err = false;
  bool follow = false;
  bool json = false;
};

void print_text(const std::string& bytes, const std::string& title) {
  if (bytes.empty()) return;
  if (!title.empty()) fmt::print("== {}\n", title);
  std::fflush(stdout);
  write_all(STDOUT_FILENO, bytes, "standard output");
  if (bytes.back() != '\n') fmt::print("\n");
}

int print(const LogsOptions& options, const std::vector<TaskOutput>& executions) {
  if (options.json) {
    std::string out;
    std::string err;
    for (const TaskOutput& printed : executions) {
      out += printed.out;
      err += printed.err;
    }
    nlohmann::json json = {{"task", options.task.task()}};
    if (!options.only_err) json["out"] = printable(out);
    if (!options.only_out) json["err"] = printable(err);
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  const bool titles = !options.only_out && !options.only_err;
  for (const TaskOutput& printed : executions) {
    if (!options.only_err) print_text(printed.out, titles ? "output" + printed.out_from : "");
    if (!options.only_out) print_text(printed.err, titles ? "errors" + printed.err_from : "");
  }
  return 0;
}

// What a file has got since the last look at it.
class Tail {
 public:
  explicit Tail(fs::path path) : path_(std::move(path)) {}
  void print_news() {
    std::error_code ignored;
    if (!fs::exists(path_, ignored)) return;
    const std::string bytes = read_file(path_);
    if (bytes.size() < printed_) printed_ = 0;  // made anew
    write_all(STDOUT_FILENO, std::string_view(bytes).substr(printed_), "standard output");
    printed_ = bytes.size();
  }

 private:
  fs::path path_;
  std::size_t printed_ = 0;
};

int logs(const LogsOptions& options) {
  const specs::Plan plan = read_plan(find_campaign(options.task.campaign()));
  const specs::TaskId task = specs::find_task(plan, options.task.task());
  const auto files = output_files(plan, task);
  if (!options.follow || !files) {
    // What is packed is entered as a whole when the task ends.
    if (options.follow) follow_task(plan, task, [] {});
    return print(options, task_output(plan, task));
  }
  const auto& [out, err] = *files;
  Tail out_tail(out);
  Tail err_tail(err);
  follow_task(plan, task, [&] {
    if (!options.only_err) out_tail.print_news();
    if (!options.only_out) err_tail.print_news();
  });
  return 0;
}

}  // namespace

void add_logs(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "what a task printed");
  command->footer(
      "--follow ends with the task, or where nobody runs the campaign.\n"
      "Examples:\n  wflow logs simulate/12\n  wflow logs campaigns/cosmoflow_20261121-160001 train --err\n  "
      "wflow logs "
      "train --follow");
  add_task_arguments(*command, options->task);
  command->add_flag("--out", options->only_out, "standard output only");
  command->add_flag("--err", options->only_err, "standard error only");
  auto* follow =
      command->add_flag("-f,--follow", options->follow, "also what comes, until the task has ended");
  command->add_flag("--json", options->json, "as JSON")->excludes(follow);
  command->callback([options, &chosen] { chosen = [options] { return logs(*options); }; });
}

}  // namespace wflow::cli
