// SPDX-License-Identifier: Apache-2.0
// Sets and maps over element numbers, kept as runs: a million neighbours in the same state are one entry.
// This is why wflow's memory and database grow with what is in flight and what went wrong, not with the
// campaign.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

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

// The first entry of a map that begins behind `element`, if none before `at` does: a few steps, or else a
// search. So many parts in order are found without a search for each.
template <typename Map, typename Iterator>
Iterator first_behind(Map& map, Iterator at, Element element) {
  constexpr int kSteps = 4;
  for (int step = 0; step < kSteps; ++step, ++at) {
    if (at == map.end() || at->first > element) return at;
  }
  return map.upper_bound(element);
}

// A set of elements. Every operation costs O(log runs + runs touched); those with many parts, which are in
// order and disjoint, take one pass.
class IntervalSet {
 public:
  void add(Range range) { add(runs_.upper_bound(range.first), range); }
  void add(std::span<const Range> parts) {
    auto at = runs_.begin();
    for (const Range& part : parts) at = add(first_behind(runs_, at, part.first), part);
  }
  void remove(Range range) { remove(runs_.upper_bound(range.first), range); }
  void remove(std::span<const Range> parts) {
    auto at = runs_.begin();
    for (const Range& part : parts) at = remove(first_behind(runs_, at, part.first), part);
  }

  bool contains(Range range) const {
    const auto at = runs_.upper_bound(range.first);
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

  template <typename Visit>
  void for_each(Visit visit) const {
    for_each_in({0, ~Element{0}}, visit);
  }

  std::uint64_t size() const { return size_; }
  std::size_t run_count() const { return runs_.size(); }
  bool empty() const { return runs_.empty(); }

 private:
  using Runs = std::map<Element, Element>;

  // `at`: the first run that begins behind range.first. Gives the run that holds the range now.
  Runs::iterator add(Runs::iterator at, Range range) {
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
    size_ += range.size();
    return runs_.emplace_hint(at, range.first, range.last);
  }

  // `at`: the first run that begins behind range.first. Gives the first one behind the range.
  Runs::iterator remove(Runs::iterator at, Range range) {
    if (at != runs_.begin()) {
      const auto run = std::prev(at);
      const Element last = run->second;
      if (last >= range.first) {
        size_ -= std::min(last, range.last) - range.first + 1;
        if (last > range.last) at = runs_.emplace_hint(at, range.last + 1, last);
        run->first == range.first ? void(runs_.erase(run)) : void(run->second = range.first - 1);
      }
    }
    while (at != runs_.end() && at->first <= range.last) {
      const Element last = at->second;
      size_ -= std::min(last, range.last) - at->first + 1;
      at = runs_.erase(at);
      if (last > range.last) at = runs_.emplace_hint(at, range.last + 1, last);
    }
    return at;
  }

  Runs runs_;  // first -> last; disjoint, never touching
  std::uint64_t size_ = 0;
};

// A map from some elements to values; neighbours with equal values are one run. Every operation costs
// O(log runs + runs touched).
template <typename Value>
class IntervalMap {
 public:
  // Whatever the range had before is replaced.
  void set(Range range, const Value& value) {
    auto at = cut(range);
    if (at != runs_.end() && at->first == range.last + 1 && at->second.value == value) {
      range.last = at->second.last;
      at = runs_.erase(at);
    }
    if (at != runs_.begin()) {
      const auto before = std::prev(at);
      if (before->second.last + 1 == range.first && before->second.value == value) {
        before->second.last = range.last;
        return;
      }
    }
    runs_.emplace_hint(at, range.first, Run{range.last, value});
  }

  void erase(Range range) { cut(range); }
  void clear() { runs_.clear(); }

  // The value of one element; null if it has none.
  const Value* find(Element element) const {
    auto at = runs_.upper_bound(element);
    if (at == runs_.begin() || (--at)->second.last < element) return nullptr;
    return &at->second.value;
  }

  // True if all of the range has this value.
  bool is(Range range, const Value& value) const {
    const auto at = runs_.upper_bound(range.first);
    return at != runs_.begin() && std::prev(at)->second.last >= range.last &&
           std::prev(at)->second.value == value;
  }

  // Calls visit(Range, const Value&) for every part of `range` that has a value, in order. `visit` must not
  // change the map. If it returns bool, false ends the walk.
  template <typename Visit>
  void for_each_in(Range range, Visit visit) const {
    auto at = runs_.upper_bound(range.first);
    if (at != runs_.begin() && std::prev(at)->second.last >= range.first) --at;
    for (; at != runs_.end() && at->first <= range.last; ++at) {
      const Range part{std::max(at->first, range.first), std::min(at->second.last, range.last)};
      if constexpr (std::is_same_v<decltype(visit(part, at->second.value)), bool>) {
        if (!visit(part, at->second.value)) return;
      } else {
        visit(part, at->second.value);
      }
    }
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for_each_in({0, ~Element{0}}, visit);
  }

  std::size_t run_count() const { return runs_.size(); }
  bool empty() const { return runs_.empty(); }

 private:
  struct Run {
    Element last;
    Value value;
  };
  using Runs = std::map<Element, Run>;

  // Removes the range; returns the first run after it.
  typename Runs::iterator cut(Range range) {
    auto at = runs_.lower_bound(range.first);
    if (at != runs_.begin()) {
      const auto before = std::prev(at);
      const Element last = before->second.last;
      if (last >= range.first) {
        before->second.last = range.first - 1;
        if (last > range.last) return runs_.emplace_hint(at, range.last + 1, Run{last, before->second.value});
      }
    }
    while (at != runs_.end() && at->first <= range.last) {
      if (at->second.last <= range.last) {
        at = runs_.erase(at);
        continue;
      }
      // Mostly a lease of which the first elements have ended: its node is used again.
      const auto behind = std::next(at);
      auto node = runs_.extract(at);
      node.key() = range.last + 1;
      return runs_.insert(behind, std::move(node));
    }
    return at;
  }

  Runs runs_;  // by first element; disjoint
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

  void set(Range range, State state) { set(runs_.upper_bound(range.first), range, state); }
  // Many parts, in order and disjoint, in one pass.
  void set(std::span<const Range> parts, State state) {
    auto at = runs_.begin();
    for (const Range& part : parts) at = set(first_behind(runs_, at, part.first), part, state);
  }

  // Gives every run within the parts, which are in order and disjoint, the state next(Range, State), in one
  // pass.
  template <typename Next>
  void change(std::span<const Range> parts, Next next) {
    auto behind = runs_.begin();
    for (const Range& part : parts) {
      for (Element first = part.first; first <= part.last;) {
        behind = first_behind(runs_, behind, first);
        const Element end = behind == runs_.end() ? count_ : behind->first;
        const Range run{first, std::min(end - 1, part.last)};
        const State old = std::prev(behind)->second;
        const State now = next(run, old);
        if (now != old) behind = set(behind, run, now);
        first = run.last + 1;
      }
    }
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

  // `behind`: the first run that begins behind range.first. Gives the first one that does so now.
  typename Runs::iterator set(typename Runs::iterator behind, Range range, State state) {
    WFLOW_CHECK(range.first <= range.last && range.last < count_);
    auto first = std::prev(behind);
    State old = first->second;
    if (first->first < range.first) first = runs_.emplace_hint(behind, range.first, old);
    Element from = range.first;  // begin of the part that was `old`
    const auto replace_until = [&](Element end) { totals_[index(old)] -= end - from; };
    for (; behind != runs_.end() && behind->first <= range.last; behind = runs_.erase(behind)) {
      replace_until(behind->first);
      from = behind->first;
      old = behind->second;
    }
    replace_until(range.last + 1);
    const bool goes_on = range.last + 1 < (behind == runs_.end() ? count_ : behind->first);
    if (goes_on) behind = runs_.emplace_hint(behind, range.last + 1, old);
    totals_[index(state)] += range.size();
    first->second = state;
    if (behind != runs_.end() && behind->second == state) behind = runs_.erase(behind);
    if (first != runs_.begin() && std::prev(first)->second == state) runs_.erase(first);
    return behind;
  }

  std::uint64_t count_;
  Runs runs_;  // first element of a run -> its state
  std::array<std::uint64_t, kStates> totals_{};
};

}  // namespace wflow::engine
