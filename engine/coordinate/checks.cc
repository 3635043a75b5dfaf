// SPDX-License-Identifier: Apache-2.0
#include "engine/coordinate/machine_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/program_file.h"
#include "base/text.h"

namespace wflow::engine {

namespace {

constexpr double kLongest_s = 1e10;
constexpr std::size_t kText = 64 << 10;
constexpr std::size_t kName = 255;  // a worker's name is a file name, too
constexpr std::size_t kRunning = 1 << 16;
constexpr int kMostCores = 1 << 20;

bool names_elements(const Scheduler& scheduler, ArrayId array, wire::Element first, std::uint64_t count) {
  if (array >= scheduler.array_count() || count == 0) return false;
  const std::uint64_t size = scheduler.states(array).count();
  return first < size && count <= size - first;
}

bool is_file_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kName && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), fits);
}

bool is_plain(const std::string& text) {
  return text.size() <= kName && printable(text) == text;
}

bool is_plain(const ProcessIdentity& process) {
  return process.pid >= 0 && is_plain(process.host) && is_plain(process.boot) &&
         is_plain(process.namespace_id);
}

}  // namespace

double checked_seconds(double seconds) {
  return std::isfinite(seconds) && seconds >= 0 && seconds <= kLongest_s ? seconds : 0;
}

std::string checked_text(const std::string& text, std::size_t limit) {
  std::string checked = printable(text);
  if (checked.size() <= limit) return checked;
  checked.resize(limit);
  // Not in the middle of a character: its other bytes begin with the bits 10.
  while (!checked.empty() && (static_cast<unsigned char>(checked.back()) & 0xC0U) == 0x80U)
    checked.pop_back();
  if (!checked.empty() && static_cast<unsigned char>(checked.back()) >= 0xC0U) checked.pop_back();
  return checked;
}

std::size_t check(wire::Results& results, const Scheduler& scheduler) {
  std::size_t dropped = std::erase_if(results.done, [&](const wire::DoneRun& run) {
    return !names_elements(scheduler, run.array, run.first, run.count);
  });
  for (wire::DoneRun& run : results.done) {
    run.duration_sum_s = checked_seconds(run.duration_sum_s);
    if (!std::isfinite(run.duration_square_sum) || run.duration_square_sum < 0) run.duration_square_sum = 0;
    run.duration_square_sum = std::min(run.duration_square_sum, kLongest_s * kLongest_s);
    run.last_end_s = checked_seconds(run.last_end_s);
  }
  dropped += std::erase_if(results.outcomes, [&](const wire::Outcome& outcome) {
    return !names_elements(scheduler, outcome.array, outcome.element, 1) || outcome.reason > kLastEndReason;
  });
  for (wire::Outcome& outcome : results.outcomes) {
    outcome.started_s = checked_seconds(outcome.started_s);
    outcome.duration_s = checked_seconds(outcome.duration_s);
    outcome.detail = checked_text(outcome.detail, kText);
  }
  dropped += std::erase_if(results.events, [&](const wire::TaskEvent& event) {
    return !names_elements(scheduler, event.array, event.element, 1) || !wire::is_wellformed(event);
  });
  for (wire::TaskEvent& event : results.events) event.time_s = checked_seconds(event.time_s);
  dropped += std::erase_if(results.usage, [&](const wire::TaskUsage& usage) {
    return !names_elements(scheduler, usage.array, usage.first, usage.count);
  });
  for (wire::TaskUsage& usage : results.usage) {
    usage.started_s = checked_seconds(usage.started_s);
    usage.duration_s = checked_seconds(usage.duration_s);
    usage.cpu_s = checked_seconds(usage.cpu_s);
  }
  return dropped;
}

std::size_t check(std::vector<wire::RunningElement>& running, const Scheduler& scheduler) {
  std::size_t dropped = std::erase_if(running, [&](const wire::RunningElement& element) {
    return !names_elements(scheduler, element.array, element.element, 1);
  });
  if (running.size() > kRunning) {
    dropped += running.size() - kRunning;
    running.resize(kRunning);
  }
  for (wire::RunningElement& element : running) element.started_s = checked_seconds(element.started_s);
  return dropped;
}

std::optional<std::string> reason_to_refuse(const wire::Hello& hello) {
  if (hello.protocol != wire::kProtocol) {
    return fmt::format(
        "worker speaks protocol {} (wflow {}), coordinator {} (wflow {}); use the same version",
        hello.protocol, checked_text(hello.version, kName), wire::kProtocol, kVersion);
  }
  if (!is_file_name(hello.worker)) return "the worker's name can't be the name of a file";
  if (!is_plain(hello.group) || !is_plain(hello.allocation) || !is_plain(hello.node) ||
      !is_plain(hello.guardian) || !is_plain(hello.agent))
    return "the worker's Hello holds bytes that are no text";
  if (hello.cores < 1 || hello.cores > kMostCores) return "a worker needs at least one core";
  if (hello.gpus < 0 || hello.gpus > kMostCores || hello.memory_bytes < 0)
    return "a worker can't have less than no GPU or memory";
  return std::nullopt;
}

}  // namespace wflow::engine
