// SPDX-License-Identifier: Apache-2.0
#include "engine/query/task_page.h"

#include <algorithm>
#include <optional>

namespace wflow::engine {

namespace {

bool has(std::uint32_t states, ElementState state) {
  return (states >> static_cast<unsigned>(state) & 1U) != 0;
}

// Elements of these states may have executions that did not succeed; others never ran.
bool may_have_records(ElementState state) {
  return state != ElementState::skipped;
}

// Builds a page array by array. Of each array it covers the elements from the first one asked for up to, but
// without, `end_`, which moves back where a list becomes too long.
class Page {
 public:
  Page(const Scheduler& scheduler, store::Store& store, const RunningElements& running,
       const wire::TasksRequest& request)
      : scheduler_(scheduler), store_(store), running_(running), request_(request) {}

  wire::TasksAnswer make() {
    if (scheduler_.array_count() == 0) return {};
    const auto last_array =
        std::min<ArrayId>(request_.last_array, static_cast<ArrayId>(scheduler_.array_count() - 1));
    wire::TaskPlace at = request_.from;
    for (; at.array <= last_array; at = {at.array + 1, request_.first}) {
      if (is_full()) {
        answer_.next = at;
        break;
      }
      answer_.next = add(at);
      if (answer_.next) break;
    }
    return std::move(answer_);
  }

 private:
  bool is_full() const {
    return visits_ >= kPageVisits || answer_.runs.size() >= kPageItems ||
           answer_.records.size() >= kPageItems || answer_.leases.size() >= kPageItems ||
           answer_.running.size() >= kPageItems;
  }

  // Where the page ends, if that is within this array.
  std::optional<wire::TaskPlace> add(wire::TaskPlace from) {
    const auto& states = scheduler_.states(from.array);
    ++visits_;
    if (states.count() == 0) return std::nullopt;
    const Range range{from.element, std::min(request_.last, states.count() - 1)};
    if (range.first > range.last) return std::nullopt;
    first_run_ = answer_.runs.size();
    array_ = from.array;
    end_ = range.last + 1;
    add_runs(range);
    add_records();
    if (has(request_.states, ElementState::leased)) {
      add_leases(range.first);
      add_running(range.first);
    }
    if (end_ > range.last) return std::nullopt;
    return wire::TaskPlace{array_, end_};
  }

  void add_runs(Range range) {
    scheduler_.states(array_).for_each_in(range, [&](Range run, ElementState state) -> bool {
      if (++visits_ > kPageVisits || answer_.runs.size() >= kPageItems) {
        end_at(run.first);
        return false;
      }
      if (has(request_.states, state)) answer_.runs.push_back({array_, run.first, run.last, state});
      return true;
    });
  }

  void add_records() {
    for (std::size_t i = first_run_; i < answer_.runs.size(); ++i) {
      const wire::TaskRun run = answer_.runs[i];
      if (!may_have_records(run.state)) continue;
      const std::size_t room = kPageItems - answer_.records.size();
      if (room == 0) return end_at(run.first);
      const auto records = store_.executions(array_, {run.first, run.last}, room);
      for (const auto& r : records) {
        answer_.records.push_back(
            {array_, r.element, r.executions, r.exit_code, r.reason, r.worker, r.started_s, r.duration_s});
      }
      if (records.size() == room && records.back().element < run.last)
        return end_at(records.back().element + 1);
    }
  }

  void add_leases(Element first) {
    std::vector<wire::TaskLease> leases;
    for (auto& part : scheduler_.leases({array_, first}, kPageItems - answer_.leases.size() + 1).parts) {
      if (part.array != array_ || part.range.first >= end_) break;
      leases.push_back({array_, std::max(part.range.first, first), std::min(part.range.last, end_ - 1),
                        std::move(part.worker)});
    }
    add_some(std::move(leases), answer_.leases, &wire::TaskLease::first);
  }

  void add_running(Element first) {
    std::vector<wire::RunningTask> running;
    for (const auto& [worker, element] : running_) {
      if (element.array == array_ && first <= element.element && element.element < end_)
        running.push_back({element.array, element.element, element.started_s});
    }
    std::ranges::sort(running, {}, &wire::RunningTask::element);
    add_some(std::move(running), answer_.running, &wire::RunningTask::element);
  }

  template <class T>
  void add_some(std::vector<T> sorted, std::vector<T>& list, Element T::*first) {
    const std::size_t room = kPageItems - list.size();
    // No two begin with the same element, so that every page moves on.
    const auto [same, end] = std::ranges::unique(sorted, {}, first);
    sorted.erase(same, end);
    if (sorted.size() > room) {
      end_at(sorted[room].*first);
      sorted.resize(room);
    }
    list.insert(list.end(), sorted.begin(), sorted.end());
  }

  // The page ends before this element: runs behind it go.
  void end_at(Element element) {
    end_ = std::min(end_, element);
    auto& runs = answer_.runs;
    while (runs.size() > first_run_ && runs.back().first >= end_) runs.pop_back();
    if (runs.size() > first_run_) runs.back().last = std::min(runs.back().last, end_ - 1);
  }

  const Scheduler& scheduler_;
  store::Store& store_;
  const RunningElements& running_;
  const wire::TasksRequest& request_;
  wire::TasksAnswer answer_;
  std::size_t visits_ = 0;
  // Of the array that is being added.
  ArrayId array_ = 0;
  std::size_t first_run_ = 0;
  Element end_ = 0;
};

}  // namespace

wire::TasksAnswer task_page(const Scheduler& scheduler, store::Store& store, const RunningElements& running,
                            const wire::TasksRequest& request) {
  return Page(scheduler, store, running, request).make();
}

}  // namespace wflow::engine
