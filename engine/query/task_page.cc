// SPDX-License-Identifier: Apache-2.0
#include "engine/query/queries.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "engine/monitor/missing_samples.h"

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
  Page(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
       const RunningElements& running, const wire::TasksRequest& request)
      : plan_(plan),
        scheduler_(scheduler),
        store_(store),
        running_(running),
        request_(request),
        conversions_(conversions(plan)) {}

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
           answer_.running.size() >= kPageItems || answer_.missing.size() >= kPageItems;
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
    request_.missing ? add_missing_runs(range) : add_runs(range);
    add_records();
    if (!request_.missing && has(request_.states, ElementState::done)) add_missing(range);
    if (!request_.missing && has(request_.states, ElementState::leased)) {
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
        answer_.records.push_back({array_, r.element, r.executions, r.exit_code, r.reason, r.worker,
                                   r.started_s, r.duration_s, r.message});
      }
      if (records.size() == room && records.back().element < run.last)
        return end_at(records.back().element + 1);
    }
  }

  // Done elements of the range with unusable output, as many as fit on the page. If there are more, the page
  // ends before them.
  std::vector<wire::MissingTask> missing_in(Range range) {
    std::map<Element, std::string> reasons;
    const std::size_t room = kPageItems - answer_.missing.size();
    const auto [begin, end] = conversions_.equal_range(array_);
    for (auto at = begin; at != end; ++at) {
      const std::string& step = plan_.steps()[plan_.step_of(at->second)].name;
      const auto records = store_.missing(at->second, range, room);
      for (const store::MissingRecord& record : records) {
        std::string& reason = reasons[record.sample];
        reason += (reason.empty() ? "" : "; ") + step + ": " + record.reason;
      }
      if (records.size() == room) end_at(records.empty() ? range.first : records.back().sample + 1);
    }
    std::vector<wire::MissingTask> missing;
    for (auto& [element, reason] : reasons) {
      const bool done = element < end_ && scheduler_.states(array_).at(element) == ElementState::done;
      if (done) missing.push_back({array_, element, std::move(reason)});
    }
    if (missing.size() > room) {
      end_at(missing[room].element);
      missing.resize(room);
    }
    return missing;
  }

  void add_missing(Range range) {
    if (answer_.runs.size() == first_run_) return;
    range.last = std::min(range.last, end_ - 1);
    std::ranges::move(missing_in(range), std::back_inserter(answer_.missing));
  }

  // These alone, as runs.
  void add_missing_runs(Range range) {
    for (wire::MissingTask& task : missing_in(range)) {
      ++visits_;
      auto& runs = answer_.runs;
      if (runs.size() > first_run_ && runs.back().last + 1 == task.element) {
        runs.back().last = task.element;
      } else {
        runs.push_back({array_, task.element, task.element, ElementState::done});
      }
      answer_.missing.push_back(std::move(task));
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
    const auto same = [first](const T& one, const T& other) { return one.*first == other.*first; };
    sorted.erase(std::unique(sorted.begin(), sorted.end(), same), sorted.end());
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
    const auto is_behind = [&](const wire::MissingTask& task) {
      return task.array == array_ && task.element >= end_;
    };
    std::erase_if(answer_.missing, is_behind);
  }

  const specs::Plan& plan_;
  const Scheduler& scheduler_;
  store::Store& store_;
  const RunningElements& running_;
  const wire::TasksRequest& request_;
  const std::multimap<ArrayId, ArrayId> conversions_;
  wire::TasksAnswer answer_;
  std::size_t visits_ = 0;
  // The array that is being added.
  ArrayId array_ = 0;
  std::size_t first_run_ = 0;
  Element end_ = 0;
};

}  // namespace

wire::TasksAnswer task_page(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
                            const RunningElements& running, const wire::TasksRequest& request) {
  return Page(plan, scheduler, store, running, request).make();
}

}  // namespace wflow::engine
