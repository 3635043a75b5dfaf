// SPDX-License-Identifier: Apache-2.0
// Sets and maps over element numbers, kept as runs: a million neighbours in the same state are one entry. Why
// wflow's memory and database grow with what is in flight and what went wrong, not with the campaign.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>

#include "base/error.h"

namespace wflow::engine {

using Element = std::uint64_t;

// Elements first..last, both included, so that the largest element can be a member.
struct Range {
  Element first = 0;
  Element last = 0;
  std::uint64_t size() const { return last - first + 1; }
  friend bool operator==(const Range&, const Range&) = default;
};

// A set of elements. Every operation costs O(log runs + runs touched).
class IntervalSet {
 public:
  void add(Range range) {
    auto at = runs_.upper_bound(range.first);
    if (at != runs_.begin()) {
      const auto before = std::prev(at);
      // Neighbours are joined; `last + 1` can't overflow: no domain ends at the largest integer.
      if (before->second + 1 >= range.first) at = before;
    }
    while (at != runs_.end() && at->first <= range.last + 1) {
      range.first = std::min(range.first, at->first);
      range.last = std::max(range.last, at->second);
      size_ -= at->second - at->first + 1;
      at = runs_.erase(at);
    }
    runs_.emplace_hint(at, range.first, range.last);
    size_ += range.size();
  }

  void remove(Range range) {
    auto at = runs_.upper_bound(range.first);
    if (at != runs_.begin() && std::prev(at)->second >= range.first) --at;
    while (at != runs_.end() && at->first <= range.last) {
      const Range old{at->first, at->second};
      at = runs_.erase(at);
      size_ -= old.size();
      if (old.first < range.first) {
        runs_.emplace_hint(at, old.first, range.first - 1);
        size_ += range.first - old.first;
      }
      if (old.last > range.last) {
        at = runs_.emplace_hint(at, range.last + 1, old.last);
        size_ += old.last - range.last;
      }
    }
  }

  bool contains(Range range) const {
    auto at = runs_.upper_bound(range.first);
    return at != runs_.begin() && std::prev(at)->second >= range.last;
  }

  // The first run, cut to at most `limit` elements.
  std::optional<Range> front(std::uint64_t limit) const {
    if (runs_.empty()) return std::nullopt;
    const auto& [first, last] = *runs_.begin();
    return Range{first, std::min(last, first + (limit - 1))};
  }

  // Calls visit(Range) for every part of `range` that is in the set, in order. `visit` must not change the
  // set.
  template <typename Visit>
  void for_each_in(Range range, Visit visit) const {
    auto at = runs_.upper_bound(range.first);
    if (at != runs_.begin() && std::prev(at)->second >= range.first) --at;
    for (; at != runs_.end() && at->first <= range.last; ++at) {
      visit(Range{std::max(at->first, range.first), std::min(at->second, range.last)});
    }
  }

  std::uint64_t size() const { return size_; }
  std::size_t run_count() const { return runs_.size(); }
  bool empty() const { return runs_.empty(); }

 private:
  std::map<Element, Element> runs_;  // first -> last; disjoint, never touching
  std::uint64_t size_ = 0;
};

// A total map from 0..count-1 to a small enum with members 0..kStates-1; neighbouring equal values are one
// run.
template <typename State, std::size_t kStates>
class RunMap {
 public:
  RunMap(std::uint64_t count, State initial) : count_(count) {
    if (count > 0) runs_.emplace(0, initial);
    totals_[index(initial)] = count;
  }

  std::uint64_t count() const { return count_; }
  std::uint64_t total(State state) const { return totals_[index(state)]; }
  std::size_t run_count() const { return runs_.size(); }

  State at(Element element) const { return std::prev(runs_.upper_bound(element))->second; }

  void set(Range range, State state) {
    WFLOW_CHECK(range.first <= range.last && range.last < count_);
    auto first = split(range.first);
    const auto end = range.last + 1 < count_ ? split(range.last + 1) : runs_.end();
    for (auto at = first; at != end; ++at) totals_[index(at->second)] -= run_end(at) - at->first;
    totals_[index(state)] += range.size();
    first->second = state;
    runs_.erase(std::next(first), end);
    if (end != runs_.end() && end->second == state) runs_.erase(end);
    if (first != runs_.begin() && std::prev(first)->second == state) runs_.erase(first);
  }

  // Calls visit(Range, State) for every run that touches `range`, cut to it, in order. `visit` must not
  // change the map. If it returns bool, false ends the walk.
  template <typename Visit>
  void for_each_in(Range range, Visit visit) const {
    if (count_ == 0) return;
    for (auto at = std::prev(runs_.upper_bound(range.first)); at != runs_.end() && at->first <= range.last;
         ++at) {
      const Range part{std::max(at->first, range.first), std::min(run_end(at) - 1, range.last)};
      if constexpr (std::is_same_v<decltype(visit(part, at->second)), bool>) {
        if (!visit(part, at->second)) return;
      } else {
        visit(part, at->second);
      }
    }
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    if (count_ > 0) for_each_in({0, count_ - 1}, visit);
  }

 private:
  using Runs = std::map<Element, State>;
  static std::size_t index(State state) { return static_cast<std::size_t>(state); }

  Element run_end(typename Runs::const_iterator at) const {
    const auto next = std::next(at);
    return next == runs_.end() ? count_ : next->first;
  }

  // Makes a run begin at `element` and gives it.
  typename Runs::iterator split(Element element) {
    auto next = runs_.lower_bound(element);
    if (next != runs_.end() && next->first == element) return next;
    return runs_.emplace_hint(next, element, std::prev(next)->second);
  }

  std::uint64_t count_;
  Runs runs_;  // first element of a run -> its state
  std::array<std::uint64_t, kStates> totals_{};
};

}  // namespace wflow::engine
