// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>

#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/view/status.h"
#include "specs/plan/plan.h"
#include "specs/plan/versions.h"
#include "specs/samples/samples.h"
#include "steps/packed_output.h"
#include "steps/step.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

bool is_packed(const specs::TaskTemplate& task) {
  return task.kind == specs::StepKind::shell && task.output == specs::OutputMode::packed;
}

std::vector<TaskOutput> packed_output_of(const std::string& name, const fs::path& directory,
                                         specs::Element element) {
  std::vector<TaskOutput> result;
  for (const steps::PackedExecution& execution : steps::find_packed(directory, element)) {
    const std::string from =
        fmt::format(" of attempt {} (from {})", execution.entry.attempt, execution.log.string());
    result.push_back({steps::packed_out(execution), steps::packed_err(execution), from, from});
  }
  if (!result.empty()) return result;
  if (const auto damage = steps::packed_damage(directory, false); !damage.empty()) {
    throw Error(ExitCode::data,
                fmt::format("there is no output of {}, and some is damaged: {}{}", name, damage.front(),
                            damage.size() > 1 ? fmt::format(" (and {} more)", damage.size() - 1) : ""));
  }
  throw Error(ExitCode::data,
              fmt::format("{} has printed nothing, or has not ended yet: {} has no entry for it", name,
                          directory.string()));
}

std::string end_of_file(const fs::path& path, std::uint64_t most) {
  std::error_code none;
  if (!fs::exists(path, none)) return {};
  const std::uint64_t size = fs::file_size(path, none);
  if (none || size <= most) return read_file(path);
  std::string bytes(most, '\0');
  bytes.resize(read_at(open_file(path, O_RDONLY).get(), size - most, bytes.data(), most, path));
  return bytes;
}

}  // namespace

std::optional<std::pair<fs::path, fs::path>> output_files(const specs::Plan& plan,
                                                          const specs::TaskId& task) {
  const specs::TaskTemplate task_template = plan.task_template(task.array);
  if (is_packed(task_template)) return std::nullopt;
  std::unique_ptr<const specs::SampleTable> samples;
  if (plan.study().samples) samples = specs::open_samples(plan.study().samples->design);
  const auto step = steps::make_step(task_template, samples.get());
  const steps::PreparedTask prepared = step->prepare({task.element, 0, false});
  const fs::path directory = prepared.directory;
  return std::pair(directory / prepared.out_file, directory / prepared.err_file);
}

void require_output(const specs::Plan& plan, const specs::TaskId& task,
                    const std::pair<fs::path, fs::path>& files) {
  std::error_code ignored;
  if (fs::exists(files.first, ignored) || fs::exists(files.second, ignored)) return;
  throw Error(ExitCode::data,
              fmt::format("{} has not run yet: there is no {}",
                          specs::task_name(plan, task.array, task.element), files.first.string()));
}

std::vector<TaskOutput> task_output(const specs::Plan& plan, const specs::TaskId& task, std::uint64_t most) {
  const auto files = output_files(plan, task);
  if (!files) {
    const fs::path directory = steps::packed_directory(plan.task_template(task.array).workspace);
    return packed_output_of(specs::task_name(plan, task.array, task.element), directory, task.element);
  }
  require_output(plan, task, *files);
  const auto& [out, err] = *files;
  return {{end_of_file(out, most), end_of_file(err, most), " " + out.string(), " " + err.string()}};
}

namespace {

namespace wire = engine::wire;
using engine::ElementState;
using Lines = std::vector<std::string>;

std::uint64_t sum_of(const wire::ParentView& parent, bool ended) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < engine::kElementStates; ++i) {
    if (has_ended(static_cast<ElementState>(i)) == ended) sum += parent.counts[i];
  }
  return sum;
}

std::string explain_sentence(const wire::ExplainAnswer& answer, bool live) {
  const std::string nobody = live ? "" : "; no coordinator runs: wflow resume continues the campaign";
  const std::uint64_t executions = answer.executions_total;
  const std::string plural = executions == 1 ? "" : "s";
  switch (answer.state) {
    case ElementState::blocked:
      return "waits for what is listed below" + nobody;
    case ElementState::ready:
      if (live && !answer.paused && !answer.waits_for.empty())
        return "can run; waits for " + answer.waits_for;
      return (answer.paused && live ? "could run, but the campaign is paused"
                                    : "can run, and waits for a free worker") +
             nobody;
    case ElementState::delayed:
      return fmt::format("failed {} time{} and will run again", executions, plural) + nobody;
    case ElementState::leased:
      if (!answer.running_since_s) return "is in the queue of worker " + answer.worker;
      return fmt::format("has run on worker {} for {}", answer.worker,
                         text::format_duration(unix_now_s() - *answer.running_since_s));
    case ElementState::done:
      if (!answer.missing.empty())
        return "ended with exit code 0, but its output could not be used; wflow redo --missing runs it again";
      return executions == 0 ? "succeeded at the first execution"
                             : fmt::format("succeeded after {} execution{} that did not", executions, plural);
    case ElementState::failed:
      return "failed for good; dependents run unless they can't work without it; wflow retry runs it again";
    case ElementState::hard_failed:
      return "failed with exit code 102: what depends on it is skipped; wflow retry runs it again";
    case ElementState::skipped:
      return "was skipped, because what it needs ended badly (below); wflow retry runs both";
    case ElementState::cancelled:
      break;
  }
  return "was cancelled; wflow retry runs it after all";
}

void add_parent(const wire::ParentView& parent, Lines& lines) {
  const std::uint64_t done = parent.counts[static_cast<std::size_t>(ElementState::done)];
  std::vector<std::string> parts = {
      fmt::format("{} of {} done", text::format_count(done), text::format_count(parent.needed))};
  for (std::size_t i = 0; i < engine::kElementStates; ++i) {
    const auto state = static_cast<ElementState>(i);
    if (state != ElementState::done && parent.counts[i] > 0)
      parts.push_back(fmt::format("{} {}", text::format_count(parent.counts[i]), name_of(state)));
  }
  lines.push_back(fmt::format("  needs {}: {}", parent.array, text::join(parts, ", ")));
  const auto add_names = [&](const char* what, const std::vector<std::string>& names, std::uint64_t all) {
    if (names.empty() || parent.needed == 1) return;
    lines.push_back(
        fmt::format("      {}: {}{}", what, text::join(names, ", "), all > names.size() ? ", ..." : ""));
  };
  add_names("not ended", parent.open, sum_of(parent, false));
  add_names("ended badly", parent.ended_badly, sum_of(parent, true) - done);
}

std::string used_text(const engine::TaskUsage& used) {
  return fmt::format(
      "{} of CPU, {} of memory{}{}", text::format_duration(used.cpu_s), text::format_bytes(used.peak_bytes),
      used.read_bytes > 0 ? fmt::format(", read {}", text::format_bytes(used.read_bytes)) : "",
      used.written_bytes > 0 ? fmt::format(", wrote {}", text::format_bytes(used.written_bytes)) : "");
}

// Adds an execution that did not fail: the failed ones are in the list of executions.
void add_success(const wire::UsedView& row, Lines& lines) {
  const engine::TaskUsage& used = row.usage;
  const std::string with = used.count == 1 ? "" : fmt::format(" with {} other samples", used.count - 1);
  lines.push_back(fmt::format("  {}  execution {}: ran for {}{} on worker {}: {}", clock_time(used.started_s),
                              used.attempt + 1, text::format_duration(used.duration_s), with, row.worker,
                              used_text(used)));
}

void add_execution(const wire::ExecutionView& row, const std::string& used, Lines& lines) {
  lines.push_back(
      fmt::format("  {}  execution {}: {} after {} on worker {}{}{}", clock_time(row.started_s),
                  row.attempt + 1, row.reason, text::format_duration(row.duration_s), row.worker,
                  row.worker_ended_s > 0
                      ? fmt::format(" (gone since {}: {})", clock_time(row.worker_ended_s), row.worker_reason)
                      : "",
                  used.empty() ? "" : ": " + used));
  const std::string detail(text::trim(row.detail));
  if (detail.empty()) return;
  for (const std::string& line : text::split(text::tail(detail, 2000), '\n'))
    lines.push_back(fmt::format("      {}", line));
}

// Adds a line with the number of entries that were left out.
void add_rest(std::uint64_t total, std::size_t shown, const char* what, Lines& lines) {
  if (total > shown)
    lines.push_back(fmt::format("  and {} {} more", text::format_count(total - shown), what));
}

}  // namespace

std::vector<std::string> explain_lines(const specs::Plan& plan, const engine::wire::ExplainAnswer& answer,
                                       bool live, const Terminal& terminal) {
  const specs::TaskId task = specs::find_task(plan, answer.task);
  Lines lines;
  lines.push_back(fmt::format("{}  {}: {}", styled(terminal, Style::bold, answer.task),
                              answer.missing.empty() ? name_of(answer.state) : "missing",
                              explain_sentence(answer, live)));
  for (const auto& parent : answer.parents) add_parent(parent, lines);
  add_rest(answer.parents_total, answer.parents.size(), "arrays", lines);
  const auto used_by = [&](const wire::ExecutionView& row) {
    for (const wire::UsedView& used : answer.used) {
      if (used.usage.attempt == row.attempt && used.worker == row.worker) return used_text(used.usage);
    }
    return std::string();
  };
  for (const std::string& reason : answer.missing) lines.push_back(fmt::format("  missing from {}", reason));
  for (const auto& row : answer.executions) add_execution(row, used_by(row), lines);
  add_rest(answer.executions_total, answer.executions.size(), "earlier executions", lines);
  if (answer.state != ElementState::done) return lines;
  // The last execution has succeeded.
  if (!answer.used.empty()) add_success(answer.used.back(), lines);
  lines.push_back(fmt::format("  as version {} of the study makes it, fingerprint {}",
                              specs::current_version(plan.campaign()),
                              specs::fingerprint_of(plan, task.array)));
  return lines;
}

}  // namespace wflow::cli
