// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/merlin_status.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "specs/study/dialect.h"

namespace wflow::engine {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// Arrays that one call of take_due() gathers: what the coordinator's loop may spend on it.
constexpr std::size_t kArraysAtOnce = 100;
constexpr const char* kFile = "/MERLIN_STATUS.json";  // in a task's directory
constexpr const char* kNoTime = "--:--:--";

constexpr int kRaiseError = 106;

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  return fmt::format("{}d:{:02}h:{:02}m:{:02}s", whole / 86400, whole / 3600 % 24, whole / 60 % 60,
                     whole % 60);
}

// PyYAML reads 1.0e+3 as a number, and 1e3 and 1.0e3 as texts (YAML 1.1: a point, and a sign in the
// exponent).
bool is_number_in_python(const std::string& value) {
  const std::size_t exponent = value.find_first_of("eE");
  if (exponent == std::string::npos) return true;
  const bool has_sign =
      exponent + 1 < value.size() && (value[exponent + 1] == '+' || value[exponent + 1] == '-');
  return has_sign && value.find('.') < exponent;
}

// With its type in YAML, as Python reads it.
OrderedJson typed(const StatusParameter& parameter) {
  const std::string& value = parameter.value;
  if (parameter.text) return value;
  if (value == "True" || value == "False") return value == "True";
  if (value == "None") return nullptr;
  const OrderedJson number = OrderedJson::parse(value, nullptr, false);
  return number.is_number() && is_number_in_python(value) ? number : OrderedJson(value);
}

OrderedJson parameters_json(const std::vector<StatusParameter>& parameters) {
  OrderedJson json;  // null without any
  for (const StatusParameter& parameter : parameters) json[parameter.name] = typed(parameter);
  return json;
}

OrderedJson leaf(const char* status, const char* code, const std::string& time, std::uint32_t restarts) {
  return {{"status", status},
          {"return_code", code == nullptr ? OrderedJson() : OrderedJson(code)},
          {"elapsed_time", time},
          {"run_time", time},
          {"restarts", restarts}};
}

OrderedJson leaf_of(ElementState state, const store::ExecutionRecord* record, double mean_s) {
  const std::uint32_t asked = record == nullptr ? 0 : record->asked;
  const int code = record == nullptr || record->reason != "exited" ? 0 : record->exit_code;
  const std::string time = duration_text(record == nullptr ? 0 : record->duration_s);
  switch (state) {
    case ElementState::done:
      if (code == kStopWorkers) return leaf("CANCELLED", "MERLIN_STOP_WORKERS", time, asked);
      return leaf("FINISHED", "MERLIN_SUCCESS", duration_text(mean_s), asked);
    case ElementState::failed:
      if (code == kRaiseError) return leaf("UNKNOWN", "MERLIN_UNRECOGNIZED", time, asked);
      if (code == kRestart || code == kRetry)
        return leaf("FAILED", "MERLIN_SOFT_FAIL (MAX RETRIES REACHED)", time, asked);
      return leaf("FAILED", "MERLIN_SOFT_FAIL", time, asked);
    case ElementState::hard_failed:
      return leaf("FAILED", "MERLIN_HARD_FAIL", time, asked);
    case ElementState::cancelled:
      return leaf("CANCELLED", nullptr, kNoTime, asked);
    case ElementState::leased:
      return leaf("RUNNING", nullptr, kNoTime, asked);
    default:
      return leaf("INITIALIZED", nullptr, kNoTime, asked);
  }
}

// Whole or not at all, but not durable: it can be made again.
void write_view(const std::string& file, const std::string& text) {
  const std::string temporary = file + ".tmp";
  {
    const FileDescriptor fd = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    write_all(fd.get(), text, temporary);
  }
  std::error_code ignored;
  fs::rename(temporary, file, ignored);
}

void write_if_there(const std::string& file, const std::string& text) {
  if (fs::is_directory(fs::path(file).parent_path())) write_view(file, text);
}

void write_files_of(const ArrayStatus& array, bool leaves) {
  if (!leaves) return write_if_there(array.file, merlin_status_text(array));
  for (const auto& [file, text] : leaf_status_texts(array)) {
    write_if_there(file, text);
    write_if_there((fs::path(file).parent_path() / "status.lock").string(), "");
  }
}

std::vector<StatusParameter> named_in(const std::string& text,
                                      const std::vector<StatusParameter>& parameters) {
  std::vector<StatusParameter> named;
  for (const StatusParameter& parameter : parameters) {
    for (const char* suffix : {")", ".label)", ".name)"}) {
      if (text.find("$(" + parameter.name + suffix) == std::string::npos) continue;
      named.push_back(parameter);
      break;
    }
  }
  return named;
}

std::uint64_t open_elements(const Scheduler& scheduler, ArrayId array) {
  const auto& states = scheduler.states(array);
  return states.total(ElementState::blocked) + states.total(ElementState::ready) +
         states.total(ElementState::leased) + states.total(ElementState::delayed);
}

std::string quoted(const std::string& text) {
  return OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string head_of(const ArrayStatus& status) {
  const OrderedJson parameters = {{"cmd", parameters_json(status.cmd_parameters)},
                                  {"restart", parameters_json(status.restart_parameters)}};
  return fmt::format("{{\n{}: {{\n\"parameters\": {}", quoted(status.key),
                     parameters.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

// Calls visit(path of the element's directory in the campaign, its leaf) in order of elements. By hand, a
// line a leaf: a JSON object that keeps its order looks at all keys for each new one.
template <typename Visit>
void for_each_leaf(const ArrayStatus& status, Visit visit) {
  auto record = status.failures.begin();
  for (const auto& [range, state] : status.states) {
    const std::string plain = leaf_of(state, nullptr, status.mean_s).dump();
    for (Element element = range.first; element <= range.last && element < kMostStatusElements; ++element) {
      while (record != status.failures.end() && record->element < element) ++record;
      const bool failed = record != status.failures.end() && record->element == element;
      std::string path = status.path;
      if (status.sample_dependent && (status.samples > 1 || element > 0))
        path += "/" + specs::sample_path(element, status.samples, status.level_max_dirs);
      visit(path, failed ? leaf_of(state, &*record, status.mean_s).dump() : plain);
    }
  }
}

}  // namespace

std::string merlin_status_text(const ArrayStatus& status) {
  std::string text = head_of(status);
  for_each_leaf(status, [&](const std::string& path, const std::string& leaf) {
    text += fmt::format(",\n{}: {}", quoted(path), leaf);
  });
  return text + "\n}\n}\n";
}

std::vector<std::pair<std::string, std::string>> leaf_status_texts(const ArrayStatus& status) {
  const std::string head = head_of(status);
  // The array's own directory is the beginning of all.
  const std::string above = status.file.substr(0, status.file.rfind('/'));
  std::vector<std::pair<std::string, std::string>> texts;
  for_each_leaf(status, [&](const std::string& path, const std::string& leaf) {
    texts.emplace_back(above + path.substr(status.path.size()) + kFile,
                       fmt::format("{},\n{}: {}\n}}\n}}\n", head, quoted(path), leaf));
  });
  return texts;
}

MerlinStatus::MerlinStatus(const specs::Plan& plan)
    : plan_(plan),
      wanted_(plan.study().format.dialect == specs::Dialect::merlin),
      leaves_(plan.study().options.leaf_status) {}

void MerlinStatus::find_missing(const Scheduler& scheduler) {
  if (!wanted_ || leaves_) return;
  std::set<ArrayId> seen;
  for (ArrayId array = 0; array < plan_.array_count(); ++array) {
    if (open_elements(scheduler, array) == 0) continue;
    for (const specs::Edge& edge : plan_.edges(array)) {
      const bool reads = plan_.steps()[plan_.step_of(edge.parent)].kind == specs::StepKind::shell &&
                         open_elements(scheduler, edge.parent) == 0;
      if (!reads || !seen.insert(edge.parent).second) continue;
      std::error_code none;
      if (!fs::exists(plan_.task_template(edge.parent).workspace + kFile, none))
        add_whole(edge.parent, scheduler);
    }
  }
}

void MerlinStatus::add_whole(ArrayId array, const Scheduler& scheduler) {
  due_[array].add({0, scheduler.states(array).count() - 1});
}

void MerlinStatus::changed(const RecordEnd& end, const Scheduler& scheduler) {
  if (!wanted_ || plan_.steps()[plan_.step_of(end.array)].kind != specs::StepKind::shell) return;
  if (leaves_) return due_[end.array].add(end.range);
  if (open_elements(scheduler, end.array) > 0) {
    open_.insert(end.array);
  } else {
    open_.erase(end.array);
    add_whole(end.array, scheduler);
  }
}

ArrayStatus MerlinStatus::gather(ArrayId array, const IntervalSet& parts, const Scheduler& scheduler,
                                 store::Store& store) const {
  const specs::TaskTemplate task = plan_.task_template(array);
  const specs::Step& step = plan_.study().steps[plan_.steps()[plan_.step_of(array)].study_step];
  std::vector<StatusParameter> parameters;
  const std::uint32_t row = plan_.parameter_row(array);
  for (const specs::Parameter& parameter : plan_.study().parameters)
    parameters.push_back({parameter.name, parameter.values[row], parameter.quoted[row]});
  const ArrayProgress progress = scheduler.progress(array);
  ArrayStatus status;
  status.file = task.workspace + kFile;
  status.key = task.label.empty() ? task.step : task.step + "_" + task.label;
  status.path = fs::path(task.workspace).lexically_relative(plan_.campaign()).string();
  status.cmd_parameters = named_in(step.command, parameters);
  status.restart_parameters = named_in(step.restart, parameters);
  status.samples = layout_of(task);
  status.sample_dependent = task.sample_dependent;
  status.level_max_dirs = task.level_max_dirs;
  status.mean_s = progress.timed == 0 ? 0 : progress.duration_sum_s / static_cast<double>(progress.timed);
  parts.for_each_in({0, kMostStatusElements - 1}, [&](Range part) {
    scheduler.states(array).for_each_in(
        part, [&](Range range, ElementState state) { status.states.emplace_back(range, state); });
    for (store::ExecutionRecord& record : store.executions(array, part))
      status.failures.push_back(std::move(record));
  });
  return status;
}

std::vector<ArrayStatus> MerlinStatus::take_due(const Scheduler& scheduler, store::Store& store) {
  std::vector<ArrayStatus> some;
  while (!due_.empty() && some.size() < kArraysAtOnce) {
    const auto next = due_.extract(due_.begin());
    some.push_back(gather(next.key(), next.mapped(), scheduler, store));
  }
  return some;
}

void MerlinStatus::end(const Scheduler& scheduler) {
  for (const ArrayId array : std::exchange(open_, {})) add_whole(array, scheduler);
}

void MerlinStatus::write(const std::vector<ArrayStatus>& arrays) const {
  for (const ArrayStatus& array : arrays) {
    try {
      write_files_of(array, leaves_);
    } catch (const std::exception&) {  // a full disk, or a directory that is gone
    }
  }
}

}  // namespace wflow::engine
