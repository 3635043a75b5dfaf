// SPDX-License-Identifier: Apache-2.0
// What is ready, and what goes first: by priority, in turns, and what has waited for too long before all.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/task_array.h"

namespace wflow::engine {

using QueueId = std::uint32_t;
// Queues that have waited too long come first; then by priority; then those that got the least so far.
using QueueKey = std::tuple<int, std::int64_t, double, QueueId>;

// The arrays of a step: they ask for the same resources, and go in the order of their numbers.
struct ReadyQueue {
  int priority = 0;
  std::uint32_t pool = 0;
  specs::Resources resources;
  Gang gang;
  std::set<ArrayId> waiting;    // with something to lease
  std::optional<QueueKey> key;  // in the order of queues
  std::uint64_t ready = 0;      // elements to lease
  std::uint64_t leased = 0;
  std::uint64_t timed = 0;
  double duration_sum_s = 0;
  double duration_square_sum = 0;
  double walltime_s = 0;  // from the study; 0: not given
  double cut_s = 0;  // the longest execution that the end of its allocation has cut: others may last as long
  double served_core_s = 0;  // leased so far, as estimated; a queue that comes later begins with the others
  double waits_since_s = 0;  // it got something to lease, or was served
  bool overdue = false;
  bool held = false;  // it has no place in the order, whatever it has to lease
  int cores = 0;      // sum of the workers that serve it
  int workers = 0;
};

class ReadyQueues {
 public:
  // `arrays` outlives the queues.
  explicit ReadyQueues(const std::vector<TaskArray>& arrays);

  std::size_t count() const { return queues_.size(); }
  const ReadyQueue& queue(QueueId id) const { return queues_[id]; }
  QueueId queue_of(ArrayId array) const { return waiting_[array].queue; }
  const ReadyQueue& queue_of_array(ArrayId array) const { return queues_[waiting_[array].queue]; }
  // Those with something to lease, in the order in which they are served.
  const std::set<QueueKey>& order() const { return order_; }

  // ---- elements
  void add(ArrayId array, std::span<const Range> parts);  // in order, disjoint
  void add_again(ArrayId array, Element element);         // it ran before
  void remove(ArrayId array, Range range);
  // Elements that ran before go first, one a lease.
  std::optional<Element> next_again(ArrayId array) const;
  std::uint64_t waiting_in(ArrayId array) const { return waiting_[array].counted; }
  // True if new elements wait, too.
  bool has_fresh(ArrayId array) const { return !waiting_[array].ready.empty(); }
  // The first of those that `fits` accepts, among the first `looks`.
  template <typename Fits>
  std::optional<Element> find_again(ArrayId array, int looks, Fits fits) const {
    for (const Element element : waiting_[array].again) {
      if (fits(element)) return element;
      if (--looks == 0) break;
    }
    return std::nullopt;
  }
  // The first ones of the others; with bundles, the range ends at the end of a bundle.
  Range next_range(ArrayId array, std::uint64_t size) const;
  // True once after an empty queue got ready elements.
  bool take_grown() { return std::exchange(grown_, false); }
  // True once after a queue has the durations of kMeasured elements.
  bool take_measured() { return std::exchange(measured_, false); }

  // Nothing of a step is leased while it is held.
  void hold(std::uint32_t step, bool held);

  // ---- accounts
  void set_time(double now_s);
  void mark_overdue();
  void serve(QueueId queue, double core_s);  // so much of it was leased
  void count_leased(ArrayId array, std::int64_t elements);
  void count_durations(ArrayId array, std::uint64_t timed, double sum_s, double square_sum);
  void count_cut(ArrayId array, double duration_s);
  void count_worker(const std::vector<bool>& serves, int cores, int sign);

  std::vector<ArrayId> without_worker(double waiting_s) const;

 private:
  struct Waiting {
    QueueId queue = 0;
    std::uint64_t counted = 0;  // in ReadyQueue::ready
    IntervalSet ready;
    std::set<Element> again;
  };

  void update(ArrayId array);
  void requeue(QueueId queue);

  const std::vector<TaskArray>& arrays_;
  std::vector<Waiting> waiting_;  // by array
  std::vector<ReadyQueue> queues_;
  std::set<QueueKey> order_;
  bool grown_ = false, measured_ = false;
  bool clock_runs_ = false;
  double now_s_ = 0;
  double next_patience_s_ = 0;
};

}  // namespace wflow::engine
