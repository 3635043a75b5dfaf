// SPDX-License-Identifier: Apache-2.0
// The scheduler's queue: which step's tasks go first.
#include <algorithm>

#include "engine/scheduler.h"

namespace wflow::engine {

namespace {

// A line that has waited for so long while others went first is served once, ...
constexpr double kPatience_s = 60;
// ... and takes no more than one part in so many of its workers' time in this way.
constexpr double kShare = 20;
constexpr double kLook_s = 1;

}  // namespace

void Scheduler::make_lines() {
  using Key = std::tuple<std::uint32_t, int, std::uint32_t, int, int, int, std::int64_t>;
  std::map<Key, LineId> known;
  for (Array& array : arrays_) {
    const ArraySpec& spec = array.spec;
    const specs::Resources& asked = spec.resources;
    const Key key(spec.step, spec.priority, spec.pool, asked.cores, asked.procs, asked.gpus,
                  asked.memory_bytes);
    const auto [at, added] = known.emplace(key, static_cast<LineId>(lines_.size()));
    if (added) {
      Line& line = lines_.emplace_back();
      line.priority = spec.priority;
      line.pool = spec.pool;
      line.resources = asked;
    }
    array.line = at->second;
  }
}

// Which lines the worker serves, and what these have of workers.
void Scheduler::count_worker(const Worker& worker, int sign) {
  for (LineId line = 0; line < lines_.size(); ++line) {
    if (!worker.serves[line]) continue;
    lines_[line].cores += sign * worker.capacity.cores;
    lines_[line].workers += sign;
  }
}

void Scheduler::move_due_retries(double now_s) {
  while (!delayed_.empty() && delayed_.begin()->first <= now_s) {
    const auto [array, element] = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    if (arrays_[array].states.at(element) != ElementState::delayed) continue;  // cancelled meanwhile
    arrays_[array].retry_ready.insert(element);
    update_queue(array);
  }
}

void Scheduler::mark_overdue() {
  if (now_s_ < next_patience_s_) return;
  next_patience_s_ = now_s_ + kLook_s;
  for (LineId id = 0; id < lines_.size(); ++id) {
    Line& line = lines_[id];
    if (!line.key || line.overdue || line.workers == 0) continue;
    if (line.timed == 0 && line.leased > 0) continue;  // not known how long one lasts: one after the other
    const double mean_s = line.timed == 0 ? 0 : line.duration_sum_s / static_cast<double>(line.timed);
    const double core_s = mean_s * std::max(1, line.resources.cores * line.resources.procs);
    if (now_s_ - line.waits_since_s < std::max(kPatience_s, kShare * core_s / line.cores)) continue;
    line.overdue = true;
    requeue(id);
  }
}

void Scheduler::update_queue(ArrayId id) {
  Array& array = arrays_[id];
  Line& line = lines_[array.line];
  const std::uint64_t waiting = array.ready.size() + array.retry_ready.size();
  line.ready += waiting - array.counted;
  array.counted = waiting;
  waiting == 0 ? void(line.waiting.erase(id)) : void(line.waiting.insert(id));
  if (line.waiting.empty() == !line.key) return;
  requeue(array.line);
}

// Puts the line where it belongs in the queue, or takes it out when it has nothing to lease.
void Scheduler::requeue(LineId id) {
  Line& line = lines_[id];
  const bool comes = !line.key;
  if (line.key) queue_.erase(*line.key);
  line.key.reset();
  if (line.waiting.empty()) {
    line.overdue = false;
    return;
  }
  if (comes) {
    line.waits_since_s = now_s_;
    const auto least = queue_.lower_bound({1, -std::int64_t{line.priority}, 0.0, 0});
    const bool equal = least != queue_.end() && std::get<1>(*least) == -std::int64_t{line.priority};
    if (equal) line.served_core_s = std::max(line.served_core_s, std::get<double>(*least));
    // Somebody may have waited for it.
    hungry_.merge(unserved_);
  }
  line.key = QueueKey(line.overdue ? 0 : 1, -std::int64_t{line.priority}, line.served_core_s, id);
  queue_.insert(*line.key);
}

// The line was leased so much.
void Scheduler::serve(LineId id, double core_s) {
  Line& line = lines_[id];
  line.served_core_s += core_s;
  line.waits_since_s = now_s_;
  line.overdue = false;
  if (line.key) requeue(id);
}

std::vector<ArrayId> Scheduler::without_worker(double patience_s) const {
  std::vector<ArrayId> arrays;
  for (const auto& key : queue_) {
    const Line& line = lines_[std::get<LineId>(key)];
    if (line.workers == 0 && now_s_ - line.waits_since_s >= patience_s)
      arrays.push_back(*line.waiting.begin());
  }
  return arrays;
}

}  // namespace wflow::engine
