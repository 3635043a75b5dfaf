// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/ready_queues.h"

#include <algorithm>
#include <map>

namespace wflow::engine {

namespace {

// A queue that has waited for so long while others went first is served once, ...
constexpr double kPatience_s = 60;
// ... and takes no more than one part in so many of its workers' time in this way.
constexpr double kShare = 20;
constexpr double kLook_s = 1;
// Fewer durations say little of the others.
constexpr std::uint64_t kMeasured = 30;

}  // namespace

ReadyQueues::ReadyQueues(const std::vector<TaskArray>& arrays) : arrays_(arrays), waiting_(arrays.size()) {
  using Key = std::tuple<std::uint32_t, int, std::uint32_t, int, int, int, std::int64_t, int, int>;
  std::map<Key, QueueId> known;
  for (ArrayId array = 0; array < arrays_.size(); ++array) {
    const ArraySpec& spec = arrays_[array].spec;
    const specs::Resources& asked = spec.resources;
    const Key key(spec.step, spec.priority, spec.pool, asked.cores, asked.procs, asked.gpus,
                  asked.memory_bytes, spec.gang.nodes, spec.gang.min_nodes);
    const auto [at, added] = known.emplace(key, static_cast<QueueId>(queues_.size()));
    if (added) {
      ReadyQueue& queue = queues_.emplace_back();
      queue.priority = spec.priority;
      queue.pool = spec.pool;
      queue.resources = asked;
      queue.gang = spec.gang;
    }
    waiting_[array].queue = at->second;
    queues_[at->second].walltime_s = std::max(queues_[at->second].walltime_s, spec.walltime_s);
  }
}

void ReadyQueues::add(ArrayId array, std::span<const Range> parts) {
  waiting_[array].ready.add(parts);
  update(array);
}

void ReadyQueues::add_again(ArrayId array, Element element) {
  waiting_[array].again.insert(element);
  update(array);
}

void ReadyQueues::remove(ArrayId array, Range range) {
  Waiting& waiting = waiting_[array];
  if (waiting.counted == 0) return;
  waiting.ready.remove(range);
  waiting.again.erase(waiting.again.lower_bound(range.first), waiting.again.upper_bound(range.last));
  update(array);
}

std::optional<Element> ReadyQueues::next_again(ArrayId array) const {
  const std::set<Element>& again = waiting_[array].again;
  return again.empty() ? std::nullopt : std::optional(*again.begin());
}

Range ReadyQueues::next_range(ArrayId array, std::uint64_t size) const {
  const IntervalSet& ready = waiting_[array].ready;
  const std::uint64_t bundle = arrays_[array].spec.bundle;
  if (bundle <= 1) return *ready.front(size);
  const Element first = ready.front(1)->first;
  const std::uint64_t count = arrays_[array].spec.count;
  const Element last = first + std::min(size, count - first) - 1;
  return *ready.front(arrays_[array].spec.bundles().around(last, count).end - first);
}

void ReadyQueues::set_time(double now_s) {
  if (!std::exchange(clock_runs_, true)) {
    for (ReadyQueue& queue : queues_) queue.waits_since_s = now_s;
  }
  now_s_ = now_s;
}

void ReadyQueues::mark_overdue() {
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

void ReadyQueues::update(ArrayId array) {
  Waiting& waiting = waiting_[array];
  ReadyQueue& queue = queues_[waiting.queue];
  const std::uint64_t now = waiting.ready.size() + waiting.again.size();
  queue.ready += now - waiting.counted;
  if ((now == 0) != (waiting.counted == 0))
    now == 0 ? void(queue.waiting.erase(array)) : void(queue.waiting.insert(array));
  waiting.counted = now;
  if ((queue.waiting.empty() || queue.held) == !queue.key) return;
  requeue(waiting.queue);
}

// Gives the queue its place in the order, or none if it has nothing to lease.
void ReadyQueues::requeue(QueueId id) {
  ReadyQueue& queue = queues_[id];
  const bool comes = !queue.key;
  if (queue.key) order_.erase(*queue.key);
  queue.key.reset();
  if (queue.waiting.empty() || queue.held) {
    queue.overdue = false;
    return;
  }
  if (comes) {
    queue.waits_since_s = now_s_;
    const auto least = order_.lower_bound({1, -std::int64_t{queue.priority}, 0.0, 0});
    const bool equal = least != order_.end() && std::get<1>(*least) == -std::int64_t{queue.priority};
    if (equal) queue.served_core_s = std::max(queue.served_core_s, std::get<double>(*least));
    grown_ = true;
  }
  queue.key = QueueKey(queue.overdue ? 0 : 1, -std::int64_t{queue.priority}, queue.served_core_s, id);
  order_.insert(*queue.key);
}

void ReadyQueues::hold(std::uint32_t step, bool held) {
  std::set<QueueId> changed;
  for (ArrayId array = 0; array < arrays_.size(); ++array) {
    if (arrays_[array].spec.step == step) changed.insert(waiting_[array].queue);
  }
  for (const QueueId id : changed) {
    queues_[id].held = held;
    requeue(id);
  }
}

void ReadyQueues::serve(QueueId id, double core_s) {
  ReadyQueue& queue = queues_[id];
  queue.served_core_s += core_s;
  queue.waits_since_s = now_s_;
  queue.overdue = false;
  if (queue.key) requeue(id);
}

void ReadyQueues::count_leased(ArrayId array, std::int64_t elements) {
  queues_[waiting_[array].queue].leased += static_cast<std::uint64_t>(elements);
}

void ReadyQueues::count_durations(ArrayId array, std::uint64_t timed, double sum_s, double square_sum) {
  ReadyQueue& queue = queues_[waiting_[array].queue];
  measured_ = measured_ || (queue.timed < kMeasured && queue.timed + timed >= kMeasured);
  queue.timed += timed;
  queue.duration_sum_s += sum_s;
  queue.duration_square_sum += square_sum;
}

void ReadyQueues::count_cut(ArrayId array, double duration_s) {
  ReadyQueue& queue = queues_[waiting_[array].queue];
  queue.cut_s = std::max(queue.cut_s, duration_s);
}

void ReadyQueues::count_worker(const std::vector<bool>& serves, int cores, int sign) {
  for (QueueId queue = 0; queue < queues_.size(); ++queue) {
    if (!serves[queue]) continue;
    queues_[queue].cores += sign * cores;
    queues_[queue].workers += sign;
  }
}

std::vector<ArrayId> ReadyQueues::without_worker(double waiting_s) const {
  std::vector<ArrayId> arrays;
  for (const auto& key : order_) {
    const ReadyQueue& queue = queues_[std::get<QueueId>(key)];
    if (queue.workers == 0 && now_s_ - queue.waits_since_s >= waiting_s)
      arrays.push_back(*queue.waiting.begin());
  }
  return arrays;
}

}  // namespace wflow::engine
