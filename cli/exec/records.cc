// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/exec_study.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>

#include "cli/exec/placeholders.h"
#include "engine/query/client.h"
#include "specs/samples/samples.h"
#include "steps/command.h"
#include "steps/packed_output.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

// A name of a file has at most 255 bytes.
constexpr std::size_t kNameBytes = 200;

using Executions = std::map<specs::Element, steps::PackedExecution>;

// The last execution of each command that printed something.
Executions last_executions(const specs::Plan& plan, specs::Element first) {
  Executions last;
  steps::PackReader reader(steps::packed_directory(plan.task_template(0).workspace));
  for (const steps::PackedExecution& execution : reader.news()) {
    if (execution.entry.element < first) continue;
    const auto [at, is_new] = last.try_emplace(execution.entry.element, execution);
    if (!is_new && execution.entry.attempt >= at->second.entry.attempt) at->second = execution;
  }
  return last;
}

bool has_ended(const TaskRow& row) {
  using engine::ElementState;
  return row.state == ElementState::done || row.state == ElementState::failed ||
         row.state == ElementState::hard_failed;
}

void write_whole(const fs::path& file, std::string_view text) {
  const FileDescriptor descriptor = open_file(file, O_WRONLY | O_CREAT | O_TRUNC);
  write_all(descriptor.get(), text, file);
}

// RESULTS/1/VALUE/2/VALUE
fs::path results_folder(const RecordOptions& options, const specs::SampleTable& samples,
                        specs::Element element) {
  fs::path folder = options.results;
  for (const auto& [name, column] : options.values) {
    const auto at = std::ranges::find(samples.columns(), column);
    std::string value =
        folder_name(samples.text(element, static_cast<std::size_t>(at - samples.columns().begin())));
    if (value.size() > kNameBytes) value = fmt::format("{}~{}", value.substr(0, kNameBytes), element + 1);
    folder = folder / folder_name(name) / value;
  }
  return folder;
}

}  // namespace

std::string joblog_line(const TaskRow& row, std::uint64_t out_bytes, std::string_view command) {
  std::string one_line(command);
  std::ranges::replace(one_line, '\n', ' ');
  const bool timed_out = row.reason == "timed_out" || row.reason == "stalled";
  const int signal = row.signal.value_or(timed_out ? SIGTERM : 0);
  const int exit_code = row.exit_code.value_or(row.signal ? 0 : -1);
  return fmt::format("{}\t:\t{:.3f}\t{:10.3f}\t0\t{}\t{}\t{}\t{}\n", row.element + 1,
                     row.started_s.value_or(0), row.duration_s.value_or(0), out_bytes, exit_code, signal,
                     one_line);
}

std::string folder_name(std::string_view argument) {
  std::string name;
  for (const char c : argument) {
    name += c == '/' ? "\\_" : c == '\\' ? "\\\\" : c == '\t' ? "\\t" : std::string(1, c);
  }
  if (name == "." || name == "..") name.insert(0, "\\");
  return name;
}

ExecRecords::ExecRecords(RecordOptions options) : options_(std::move(options)) {
  if (!options_.results.empty()) make_directories(options_.results);
  if (options_.joblog.empty()) return;
  log_ = open_file(options_.joblog, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  write_all(log_.get(), "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n",
            options_.joblog);
}

void ExecRecords::add(const specs::Plan& plan, specs::Element first) {
  const auto samples = specs::open_samples(plan.study().samples->design);
  const specs::TaskTemplate task = plan.task_template(0);
  const std::string here = current_directory().string();
  const Executions executions = last_executions(plan, first);
  engine::Client client(plan);
  SelectionOptions selection;
  selection.range = fmt::format("{}:", first);
  selection.with_usage = true;
  select_tasks(plan, client, selection, [&](const TaskRow& row) {
    if (!has_ended(row)) return true;
    const auto at = executions.find(row.element);
    const bool printed = at != executions.end() && at->second.entry.attempt + 1 == row.attempts;
    if (log_) {
      const std::string command =
          without_folder(steps::render(task.command, samples.get(), row.element, ""), here);
      write_all(log_.get(), joblog_line(row, printed ? at->second.entry.out_bytes : 0, command),
                options_.joblog);
    }
    if (options_.results.empty()) return true;
    const fs::path folder = results_folder(options_, *samples, row.element);
    make_directories(folder);
    write_whole(folder / "stdout", printed ? steps::packed_out(at->second) : std::string());
    write_whole(folder / "stderr", printed ? steps::packed_err(at->second) : std::string());
    write_whole(folder / "seq", std::to_string(row.element + 1));
    return true;
  });
}

}  // namespace wflow::cli
