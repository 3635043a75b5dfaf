// SPDX-License-Identifier: Apache-2.0
#include "cli/top/rates.h"

#include <algorithm>
#include <utility>

namespace wflow::cli::top {

RateHistory::RateHistory(double span_s) : span_s_(span_s) {}

void RateHistory::add(const engine::wire::StatusAnswer& status, double time_s) {
  if (!began_) begin_s_ = time_s;
  if (began_) close_spans(time_s);
  for (const auto& step : status.steps) {
    now_[step.name] = step.ended();
    at_begin_.try_emplace(step.name, step.ended());
  }
  began_ = true;
}

// Counts the ends since the last call in the span of that call; empty spans may follow.
void RateHistory::close_spans(double time_s) {
  while (time_s >= begin_s_ + span_s_) {
    const double missed = (time_s - begin_s_) / span_s_;
    // After a long pause of the process, do not write each empty span.
    if (missed > 2.0 * kMost) {
      begin_s_ = time_s;
      at_begin_ = now_;
      return;
    }
    for (auto& [step, count] : now_) {
      const std::uint64_t before = at_begin_[step];
      // A retry reopens ended tasks.
      const double ended = count > before ? static_cast<double>(count - before) : 0;
      rates_[step].push_back(ended / span_s_);
    }
    at_begin_ = now_;
    begin_s_ += span_s_;
    const bool full =
        std::ranges::any_of(rates_, [](const auto& entry) { return entry.second.size() > kMost; });
    if (full) merge();
  }
}

void WorkerRates::add(const std::vector<engine::wire::WorkerStatus>& workers, double time_s) {
  std::map<std::string, std::deque<Count>> counts;
  for (const engine::wire::WorkerStatus& worker : workers) {
    std::deque<Count> list = std::move(counts_[worker.id]);
    // Another coordinator counts from 0.
    if (!list.empty() && list.back().ended > worker.ended) list.clear();
    list.push_back({time_s, worker.ended});
    while (list.size() > 2 && list[1].time_s <= time_s - kWindow_s) list.pop_front();
    counts.emplace(worker.id, std::move(list));
  }
  counts_ = std::move(counts);
}

std::map<std::string, double> WorkerRates::rates() const {
  std::map<std::string, double> rates;
  for (const auto& [worker, list] : counts_) {
    const double seconds = list.back().time_s - list.front().time_s;
    if (seconds > 0) rates[worker] = static_cast<double>(list.back().ended - list.front().ended) / seconds;
  }
  return rates;
}

void CoreUse::add(const TopData& data, double time_s) {
  const std::uint64_t ended = data.status.ended();
  // A retry reopens ended tasks.
  if (!samples_.empty() && ended < samples_.back().ended) samples_.clear();
  samples_.push_back({time_s, busy_core_s(data), ended});
  while (samples_.size() > 2 && samples_[1].time_s <= time_s - kWindow_s) samples_.pop_front();
  used_ = {};
  const Sample& first = samples_.front();
  const double seconds = time_s - first.time_s;
  if (seconds <= 0) return;
  double slots = 0;
  std::map<std::string_view, double> held;  // by running tasks now
  for (const auto& worker : data.status.workers) {
    slots += worker.cores;
    held[worker.id] = static_cast<double>(worker.running);
  }
  const double used = std::max(0.0, samples_.back().core_s - first.core_s);
  // If very many tasks run, those that are not listed count when they end.
  const bool listed = data.running_total <= data.running.size();
  const double least = listed ? 0 : static_cast<double>(data.running_total);
  used_.all = std::min(std::max(used / seconds, least), slots);
  const std::uint64_t ends = ended - first.ended;
  if (ends == 0) return;
  for (const auto& worker : data.status.workers) {
    const auto rate = data.worker_rates.find(worker.id);
    if (rate == data.worker_rates.end()) continue;
    const double cores = rate->second * used / static_cast<double>(ends);
    used_.by_worker[worker.id] =
        std::clamp(std::max(cores, held[worker.id]), 0.0, static_cast<double>(worker.cores));
  }
}

void RateHistory::merge() {
  for (auto& [step, values] : rates_) {
    std::vector<double> merged;
    for (std::size_t i = values.size() % 2; i + 1 < values.size(); i += 2)
      merged.push_back((values[i] + values[i + 1]) / 2);
    values = std::move(merged);
  }
  span_s_ *= 2;
}

}  // namespace wflow::cli::top
