// SPDX-License-Identifier: Apache-2.0
// The scheduler's dependencies: when what an element waits for has ended, it can run or is skipped.
#include <algorithm>

#include "engine/schedule/scheduler.h"

namespace wflow::engine {

// Ends cascade (a skipped element ends too), so they are worked off from a list and not by recursion: a chain
// of a thousand steps must not need a thousand frames.
void Scheduler::propagate() {
  while (!newly_ended_.empty()) {
    const auto [parent, range] = newly_ended_.back();
    newly_ended_.pop_back();
    for (const Child& child : arrays_[parent].children) {
      if (child.kind == specs::EdgeKind::all && arrays_[parent].ended.size() < arrays_[parent].spec.count)
        continue;
      if (const auto touched = children_of(child, range)) resolve(child.array, *touched);
    }
  }
}

// The child elements that wait for an element of the parent's `range`.
std::optional<Range> Scheduler::children_of(const Child& child, Range range) const {
  const std::uint64_t count = arrays_[child.array].spec.count;
  if (count == 0) return std::nullopt;
  Range touched{0, count - 1};
  if (child.kind == specs::EdgeKind::element) touched = range;
  if (child.kind == specs::EdgeKind::block) touched = {range.first / child.block, range.last / child.block};
  if (touched.first >= count) return std::nullopt;
  touched.last = std::min(touched.last, count - 1);
  return touched;
}

// Elements of one process start together: those that could run wait for the others of their bundle.
void Scheduler::hold_incomplete_bundles(const Array& array, std::vector<Judged>& parts) const {
  const std::uint64_t bundle = array.spec.bundle;
  IntervalSet free;
  for (const auto& [range, verdict] : parts) {
    if (verdict == Verdict::run) free.add(range);
  }
  for (const auto& [range, verdict] : parts) {
    if (verdict == Verdict::wait)
      free.remove({range.first / bundle * bundle, range.last / bundle * bundle + bundle - 1});
  }
  std::erase_if(parts, [](const Judged& part) { return part.second == Verdict::run; });
  free.for_each_in({0, array.spec.count - 1}, [&](Range r) { parts.emplace_back(r, Verdict::run); });
}

void Scheduler::resolve(ArrayId child, Range range) {
  const ArraySpec& spec = arrays_[child].spec;
  if (spec.bundle > 1) {
    range = {range.first / spec.bundle * spec.bundle,
             std::min(range.last / spec.bundle * spec.bundle + spec.bundle, spec.count) - 1};
  }
  for (const Range& part :
       parts_in(child, range, [](ElementState s) { return s == ElementState::blocked; })) {
    std::vector<Judged> judged = {{part, Verdict::run}};
    for (const specs::Edge& edge : spec.edges) judged = judge(judged, edge, spec.continue_on);
    if (spec.bundle > 1) hold_incomplete_bundles(arrays_[child], judged);
    for (const auto& [run, verdict] : judged) {
      if (verdict == Verdict::run) make_ready(child, run);
      if (verdict == Verdict::skip) end(child, run, ElementState::skipped);
    }
  }
}

// Splits the parts further by what one more edge says of them; the worst verdict of all edges counts.
std::vector<Scheduler::Judged> Scheduler::judge(const std::vector<Judged>& parts, const specs::Edge& edge,
                                                specs::ContinueOn policy) const {
  std::vector<Judged> result;
  const auto add = [&](Range range, Verdict verdict) {
    const bool joins =
        !result.empty() && result.back().second == verdict && result.back().first.last + 1 == range.first;
    joins ? void(result.back().first.last = range.last) : void(result.emplace_back(range, verdict));
  };
  for (const auto& [range, before] : parts) {
    if (before == Verdict::wait) {
      add(range, before);
      continue;
    }
    for_each_verdict(edge, range, policy,
                     [&](Range r, Verdict verdict) { add(r, std::max(before, verdict)); });
  }
  return result;
}

template <typename Visit>
void Scheduler::for_each_verdict(const specs::Edge& edge, Range range, specs::ContinueOn policy,
                                 Visit visit) const {
  const Array& parent = arrays_[edge.parent];
  const auto of_state = [&](ElementState state) {
    if (!has_ended(state)) return Verdict::wait;
    return satisfies(state, policy) ? Verdict::run : Verdict::skip;
  };
  switch (edge.kind) {
    case specs::EdgeKind::element:
      parent.states.for_each_in(range, [&](Range r, ElementState state) { visit(r, of_state(state)); });
      break;
    case specs::EdgeKind::block:
      for (Element block = range.first; block <= range.last; ++block) {
        const Range needed{block * edge.block, std::min((block + 1) * edge.block, parent.spec.count) - 1};
        Verdict verdict = parent.ended.contains(needed) ? Verdict::run : Verdict::wait;
        if (verdict == Verdict::run) {
          parent.states.for_each_in(needed,
                                    [&](Range, ElementState s) { verdict = std::max(verdict, of_state(s)); });
        }
        visit(Range{block, block}, verdict);
      }
      break;
    case specs::EdgeKind::all: {
      Verdict verdict = parent.ended.size() < parent.spec.count ? Verdict::wait : Verdict::run;
      for (std::size_t state = 0; verdict != Verdict::wait && state < kElementStates; ++state) {
        const auto s = static_cast<ElementState>(state);
        if (parent.states.total(s) > 0) verdict = std::max(verdict, of_state(s));
      }
      visit(range, verdict);
      break;
    }
  }
}

}  // namespace wflow::engine
