// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/merlin_status.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "specs/study/dialect.h"

namespace wflow::engine {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// Arrays that one call of write_some() looks at: what the coordinator's loop may spend on it.
constexpr std::size_t kArraysAtOnce = 100;
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
  const std::uint32_t executions = record == nullptr ? 0 : record->executions;
  const int code = record == nullptr || record->reason != "exited" ? 0 : record->exit_code;
  const std::string time = duration_text(record == nullptr ? 0 : record->duration_s);
  const std::uint32_t before = std::max(executions, 1U) - 1;  // executions ahead of the one that failed
  switch (state) {
    case ElementState::done:
      if (code == kStopWorkers) return leaf("CANCELLED", "MERLIN_STOP_WORKERS", time, before);
      return leaf("FINISHED", "MERLIN_SUCCESS", duration_text(mean_s), executions);
    case ElementState::failed:
      if (code == kRaiseError) return leaf("UNKNOWN", "MERLIN_UNRECOGNIZED", time, before);
      if (code == kRestart || code == kRetry)
        return leaf("FAILED", "MERLIN_SOFT_FAIL (MAX RETRIES REACHED)", time, before);
      return leaf("FAILED", "MERLIN_SOFT_FAIL", time, before);
    case ElementState::hard_failed:
      return leaf("FAILED", "MERLIN_HARD_FAIL", time, before);
    case ElementState::cancelled:
      return leaf("CANCELLED", nullptr, kNoTime, executions);
    case ElementState::leased:
      return leaf("RUNNING", nullptr, kNoTime, executions);
    default:
      return leaf("INITIALIZED", nullptr, kNoTime, executions);
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

// A full disk or a directory that is gone costs a view and no result.
void write_views(const std::vector<ArrayStatus>& arrays, bool leaves) {
  for (const ArrayStatus& array : arrays) {
    try {
      if (!leaves) {
        write_if_there(array.file, merlin_status_text(array));
        continue;
      }
      for (const auto& [file, text] : leaf_status_texts(array)) {
        write_if_there(file, text);
        write_if_there((fs::path(file).parent_path() / "status.lock").string(), "");
      }
    } catch (const std::exception&) {
    }
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
    texts.emplace_back(above + path.substr(status.path.size()) + "/MERLIN_STATUS.json",
                       fmt::format("{},\n{}: {}\n}}\n}}\n", head, quoted(path), leaf));
  });
  return texts;
}

MerlinStatus::MerlinStatus(const specs::Plan& plan)
    : plan_(plan),
      wanted_(plan.study().format.dialect == specs::Dialect::merlin),
      leaves_(plan.study().options.leaf_status) {}

void MerlinStatus::changed(ArrayId array) {
  if (!wanted_ || plan_.steps()[plan_.step_of(array)].kind != specs::StepKind::shell) return;
  due_.insert(array);
}

ArrayStatus MerlinStatus::gather(ArrayId array, const Scheduler& scheduler, store::Store& store) const {
  const specs::TaskTemplate task = plan_.task_template(array);
  const specs::Step& step = plan_.study().steps[plan_.steps()[plan_.step_of(array)].study_step];
  std::vector<StatusParameter> parameters;
  const std::uint32_t row = plan_.parameter_row(array);
  for (const specs::Parameter& parameter : plan_.study().parameters)
    parameters.push_back({parameter.name, parameter.values[row], parameter.quoted[row]});
  const ArrayProgress progress = scheduler.progress(array);
  ArrayStatus status;
  status.file = task.workspace + "/MERLIN_STATUS.json";
  status.key = task.label.empty() ? task.step : task.step + "_" + task.label;
  status.path = fs::path(task.workspace).lexically_relative(plan_.campaign()).string();
  status.cmd_parameters = named_in(step.command, parameters);
  status.restart_parameters = named_in(step.restart, parameters);
  status.samples = layout_of(task);
  status.sample_dependent = task.sample_dependent;
  status.level_max_dirs = task.level_max_dirs;
  status.mean_s = progress.timed == 0 ? 0 : progress.duration_sum_s / static_cast<double>(progress.timed);
  const std::uint64_t count = std::min(scheduler.states(array).count(), kMostStatusElements);
  if (count == 0) return status;
  scheduler.states(array).for_each_in(
      {0, count - 1}, [&](Range range, ElementState state) { status.states.emplace_back(range, state); });
  status.failures = store.executions(array, {0, count - 1});
  return status;
}

void MerlinStatus::write(const std::set<ArrayId>& arrays, const Scheduler& scheduler, store::Store& store) {
  std::vector<ArrayStatus> views;
  for (const ArrayId array : arrays) views.push_back(gather(array, scheduler, store));
  writing_ = std::async(std::launch::async,
                        [views = std::move(views), leaves = leaves_] { write_views(views, leaves); });
}

void MerlinStatus::write_some(const Scheduler& scheduler, store::Store& store) {
  if (due_.empty()) return;
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  std::set<ArrayId> ended;
  std::size_t looked_at = 0;
  for (auto at = due_.begin(); at != due_.end() && looked_at < kArraysAtOnce; ++looked_at) {
    const auto& states = scheduler.states(*at);
    const std::uint64_t open = states.total(ElementState::blocked) + states.total(ElementState::ready) +
                               states.total(ElementState::leased) + states.total(ElementState::delayed);
    if (open > 0) {
      ++at;
      continue;
    }
    ended.insert(*at);
    at = due_.erase(at);
  }
  if (!ended.empty()) write(ended, scheduler, store);
}

void MerlinStatus::finish(const Scheduler& scheduler, store::Store& store) {
  while (!due_.empty()) {
    std::set<ArrayId> some;
    while (!due_.empty() && some.size() < kArraysAtOnce) some.insert(due_.extract(due_.begin()));
    if (writing_.valid()) writing_.wait();
    write(some, scheduler, store);
  }
  if (writing_.valid()) writing_.wait();
}

}  // namespace wflow::engine
