// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/blocks.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "specs/samples/samples.h"
#include "steps/step.h"

namespace wflow::cli {

namespace {

constexpr std::uint64_t kMostTasks = 100'000;

// Writes only scripts: other files of a task (a table of its samples) are made when it runs.
void write(const std::vector<steps::NewFile>& files, std::set<std::string>& written) {
  for (const steps::NewFile& file : files) {
    if (!file.path.ends_with(".sh") || !written.insert(file.path).second) continue;
    // Not durable: a run of the campaign writes a script again that a power cut has lost.
    const FileDescriptor script = open_file(file.path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    write_all(script.get(), file.text, file.path);
  }
}

std::uint64_t write_array(specs::TaskTemplate task, std::uint64_t elements,
                          const specs::SampleTable* samples) {
  // Here, a command also gets a script that a run would start without one.
  task.shell_given = true;
  task.output = specs::OutputMode::files;
  const auto step = steps::make_step(task, samples);
  const steps::ArraySetup setup = step->setup();
  for (const std::string& directory : setup.directories) make_directories(directory);
  std::set<std::string> written;
  write(setup.files, written);
  const Blocks processes(std::max<std::uint64_t>(task.bundle, 1), task.sample_starts);
  std::uint64_t end = 0;
  for (std::uint64_t element = 0; element < elements; element = end) {
    end = task.bundle > 0 ? processes.around(element, elements).end : element + 1;
    steps::Execution execution;
    execution.count = end - element;
    for (const bool restart : {false, true}) {
      if (restart && task.restart.empty()) continue;
      execution.element = element;
      execution.restart = restart;
      const steps::PreparedTask prepared = step->prepare(execution);
      make_directories(prepared.directory);
      write(prepared.files, written);
    }
  }
  return written.size();
}

}  // namespace

void check_dry(const specs::Plan& plan) {
  if (plan.element_count() <= kMostTasks) return;
  throw Error(
      ExitCode::usage,
      fmt::format("--dry writes the scripts of all tasks, and this study has {} of them (at most {}); take "
                  "fewer samples, or use wflow plan",
                  text::format_count(plan.element_count()), text::format_count(kMostTasks)));
}

int write_scripts(const specs::Plan& plan, bool quiet) {
  check_dry(plan);  // samples: generate: may have made more samples than expected
  std::unique_ptr<const specs::SampleTable> samples;
  if (plan.study().samples) samples = specs::open_samples(plan.study().samples->design);
  std::uint64_t written = 0;
  for (const specs::PlannedStep& step : plan.steps()) {
    for (specs::ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array)
      written += write_array(plan.task_template(array), step.elements, samples.get());
  }
  written += static_cast<std::uint64_t>(write_allocation_scripts(plan));
  if (!quiet) {
    fmt::print("{} scripts in {}; nothing has run (wflow resume runs it)\n", text::format_count(written),
               plan.campaign().string());
  }
  return 0;
}

}  // namespace wflow::cli
