// SPDX-License-Identifier: Apache-2.0
// The scheduler's queue: which step's tasks go first.
#include <algorithm>

#include "engine/schedule/scheduler.h"

namespace wflow::engine {

namespace {

// A queue that has waited for so long while others went first is served once, ...
constexpr double kPatience_s = 60;
// ... and takes no more than one part in so many of its workers' time in this way.
constexpr double kShare = 20;
constexpr double kLook_s = 1;

}  // namespace

void Scheduler::make_queues() {
  using Key = std::tuple<std::uint32_t, int, std::uint32_t, int, int, int, std::int64_t>;
  std::map<Key, QueueId> known;
  for (Array& array : arrays_) {
    const ArraySpec& spec = array.spec;
    const specs::Resources& asked = spec.resources;
    const Key key(spec.step, spec.priority, spec.pool, asked.cores, asked.procs, asked.gpus,
                  asked.memory_bytes);
    const auto [at, added] = known.emplace(key, static_cast<QueueId>(queues_.size()));
    if (added) {
      ReadyQueue& queue = queues_.emplace_back();
      queue.priority = spec.priority;
      queue.pool = spec.pool;
      queue.resources = asked;
    }
    array.queue = at->second;
  }
}

// Which queues the worker serves, and what these have of workers.
void Scheduler::count_worker(const Worker& worker, int sign) {
  for (QueueId queue = 0; queue < queues_.size(); ++queue) {
    if (!worker.serves[queue]) continue;
    queues_[queue].cores += sign * worker.capacity.cores;
    queues_[queue].workers += sign;
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
  for (QueueId id = 0; id < queues_.size(); ++id) {
    ReadyQueue& queue = queues_[id];
    if (!queue.key || queue.overdue || queue.workers == 0) continue;
    if (queue.timed == 0 && queue.leased > 0) continue;  // not known how long one lasts: one after the other
    const double mean_s = queue.timed == 0 ? 0 : queue.duration_sum_s / static_cast<double>(queue.timed);
    const double core_s = mean_s * std::max(1, queue.resources.cores * queue.resources.procs);
    if (now_s_ - queue.waits_since_s < std::max(kPatience_s, kShare * core_s / queue.cores)) continue;
    queue.overdue = true;
    requeue(id);
  }
}

void Scheduler::update_queue(ArrayId id) {
  Array& array = arrays_[id];
  ReadyQueue& queue = queues_[array.queue];
  const std::uint64_t waiting = array.ready.size() + array.retry_ready.size();
  queue.ready += waiting - array.counted;
  array.counted = waiting;
  waiting == 0 ? void(queue.waiting.erase(id)) : void(queue.waiting.insert(id));
  if (queue.waiting.empty() == !queue.key) return;
  requeue(array.queue);
}

// Puts the queue where it belongs in the queue, or takes it out when it has nothing to lease.
void Scheduler::requeue(QueueId id) {
  ReadyQueue& queue = queues_[id];
  const bool comes = !queue.key;
  if (queue.key) order_.erase(*queue.key);
  queue.key.reset();
  if (queue.waiting.empty()) {
    queue.overdue = false;
    return;
  }
  if (comes) {
    queue.waits_since_s = now_s_;
    const auto least = order_.lower_bound({1, -std::int64_t{queue.priority}, 0.0, 0});
    const bool equal = least != order_.end() && std::get<1>(*least) == -std::int64_t{queue.priority};
    if (equal) queue.served_core_s = std::max(queue.served_core_s, std::get<double>(*least));
    // Somebody may have waited for it.
    demand_.merge(unserved_);
  }
  queue.key = QueueKey(queue.overdue ? 0 : 1, -std::int64_t{queue.priority}, queue.served_core_s, id);
  order_.insert(*queue.key);
}

// The queue was leased so much.
void Scheduler::serve(QueueId id, double core_s) {
  ReadyQueue& queue = queues_[id];
  queue.served_core_s += core_s;
  queue.waits_since_s = now_s_;
  queue.overdue = false;
  if (queue.key) requeue(id);
}

std::vector<ArrayId> Scheduler::without_worker(double patience_s) const {
  std::vector<ArrayId> arrays;
  for (const auto& key : order_) {
    const ReadyQueue& queue = queues_[std::get<QueueId>(key)];
    if (queue.workers == 0 && now_s_ - queue.waits_since_s >= patience_s)
      arrays.push_back(*queue.waiting.begin());
  }
  return arrays;
}

}  // namespace wflow::engine
