// SPDX-License-Identifier: Apache-2.0
// The scheduler's moves between states.
#include <algorithm>
#include <map>
#include <utility>

#include "engine/schedule/scheduler.h"

namespace wflow::engine {

// The parts of `range` whose state `keep` accepts: gathered first, because what follows changes the states.
std::vector<Range> Scheduler::parts_in(ArrayId array, Range range, bool (*keep)(ElementState)) {
  std::vector<Range> parts;
  arrays_[array].states.for_each_in(range, [&](Range part, ElementState state) {
    ++work_;
    if (!keep(state)) return;
    const bool joins = !parts.empty() && parts.back().last + 1 == part.first;
    joins ? void(parts.back().last = part.last) : parts.push_back(part);
  });
  return parts;
}

// ---- ends

void Scheduler::end(ArrayId id, Range range, ElementState state) {
  TaskArray& array = arrays_[id];
  drop_waiting(id, range);
  array.states.set(range, state);
  array.ended.add(range);
  open_ -= range.size();
  // Neighbours that end one by one are one record.
  std::vector<RecordEnd>& ends = actions_.ends;
  const bool joins = !ends.empty() && ends.back().array == id && ends.back().state == state &&
                     ends.back().range.last + 1 == range.first;
  joins ? void(ends.back().range.last = range.last) : ends.push_back({id, range, state});
  newly_ended_.emplace_back(id, range);
}

// Takes the elements out of whatever they wait in; the caller sets their state.
void Scheduler::drop_waiting(ArrayId id, Range range) {
  TaskArray& array = arrays_[id];
  ready_.remove(id, range);
  if (!array.cancel_requested.empty()) array.cancel_requested.remove(range);
  if (!array.attempts.empty())
    array.attempts.erase(array.attempts.lower_bound(range.first), array.attempts.upper_bound(range.last));
}

// ---- what ends release

// Ends cascade (a skipped element ends too), so they are worked off from a list and not by recursion: a chain
// of a thousand steps must not need a thousand frames. Ends of one array are taken together, so that a child
// that waits for all of them is looked at once.
void Scheduler::propagate() {
  const auto resolve_below = [&](ArrayId parent, std::span<const Range> parts) {
    graph_.for_each_below(parent, parts, [&](ArrayId child, Range range) { resolve(child, range); });
  };
  while (!newly_ended_.empty()) {
    if (newly_ended_.size() == 1) {
      const auto [parent, range] = newly_ended_.back();
      newly_ended_.pop_back();
      resolve_below(parent, {&range, 1});
      continue;
    }
    std::map<ArrayId, IntervalSet> ended;
    for (const auto& [array, range] : newly_ended_) ended[array].add(range);
    newly_ended_.clear();
    for (const auto& [parent, set] : ended) {
      std::vector<Range> parts;
      set.for_each([&](Range part) { parts.push_back(part); });
      resolve_below(parent, parts);
    }
  }
}

void Scheduler::resolve(ArrayId array, Range range) {
  for (const auto& [part, verdict] : graph_.judge(array, range)) {
    verdict == Verdict::run ? make_ready(array, part) : end(array, part, ElementState::skipped);
  }
}

// From blocked or leased to what can be leased: elements that ran before keep their attempt. Those whose
// success has arrived early are done.
void Scheduler::make_ready(ArrayId id, Range range) {
  if (arrays_[id].early.empty()) {
    make_ready_now(id, range);
    return;
  }
  for (const Range& part : apply_early(id, range)) make_ready_now(id, part);
}

void Scheduler::make_ready_now(ArrayId id, Range range) {
  TaskArray& array = arrays_[id];
  const auto fresh = [&](Range part) {
    array.states.set(part, ElementState::ready);
    ready_.add(id, part);
  };
  Element next = range.first;
  for (auto at = array.attempts.lower_bound(range.first);
       at != array.attempts.end() && at->first <= range.last; ++at) {
    if (at->first > next) fresh({next, at->first - 1});
    array.states.set({at->first, at->first}, ElementState::delayed);
    ready_.add_again(id, at->first);
    next = at->first + 1;
  }
  if (next <= range.last) fresh({next, range.last});
}

// ---- leases end

// What the lease held of the range, and does not hold any more: it is cancelled, runs again, or waits for new
// input if it ran on old input.
void Scheduler::give_back(LeaseId lease, ArrayId id, Range range) {
  TaskArray& array = arrays_[id];
  std::vector<Range> cancelled;
  array.cancel_requested.for_each_in(range, [&](Range part) { cancelled.push_back(part); });
  for (const Range& part : cancelled) end(id, part, ElementState::cancelled);
  std::vector<Range> again, invalidated;
  for (const Range& part : parts_in(id, range, [](ElementState s) { return s == ElementState::leased; })) {
    array.for_each_floor(part,
                         [&](Range r, LeaseId floor) { (lease < floor ? invalidated : again).push_back(r); });
  }
  for (const Range& part : again) make_ready(id, part);
  for (const Range& part : invalidated) {
    drop_waiting(id, part);
    array.states.set(part, ElementState::blocked);
    resolve(id, part);
  }
  propagate();
}

// ---- opened again

// Back to blocked, and with it everything below that was skipped because of it or has run without it; parents
// first, each array once.
std::uint64_t Scheduler::retry_failed(const std::vector<std::pair<ArrayId, Range>>& parts) {
  std::map<std::pair<std::uint32_t, ArrayId>, IntervalSet> touched;
  std::uint64_t count = 0;
  for (const auto& [array, range] : parts) {
    for (const Range& failed : parts_in(array, range, can_retry))
      touched[{graph_.rank(array), array}].add(failed);
  }
  std::vector<ArrayId> asked;
  for (const auto& [key, failed] : touched) {
    asked.push_back(key.second);
    count += failed.size();
  }
  std::map<ArrayId, Range> bounds;
  while (!touched.empty()) {
    const auto node = touched.extract(touched.begin());
    const ArrayId array = node.key().second;
    const std::vector<Range> reopened = reopen_in(array, node.mapped());
    if (!reopened.empty()) bounds[array] = {reopened.front().first, reopened.back().last};
    graph_.for_each_below(array, reopened, [&](ArrayId child, Range range) {
      touched[{graph_.rank(child), child}].add(range);
    });
  }
  for (const ArrayId array : asked) {
    if (bounds.contains(array)) resolve(array, bounds[array]);
  }
  propagate();
  return count;
}

// Gives the parts that had ended: what waits for the others is blocked anyway.
std::vector<Range> Scheduler::reopen_in(ArrayId id, const IntervalSet& touched) {
  std::vector<std::pair<Range, ElementState>> found;
  touched.for_each([&](Range range) {
    arrays_[id].states.for_each_in(range, [&](Range part, ElementState state) {
      if (state != ElementState::blocked) found.emplace_back(part, state);
      ++work_;
    });
  });
  std::vector<Range> reopened;
  for (const auto& [part, state] : found) {
    raise_floor(id, part);
    if (state == ElementState::leased) continue;  // invalidated
    drop_waiting(id, part);
    arrays_[id].states.set(part, ElementState::blocked);
    if (!has_ended(state)) continue;
    arrays_[id].ended.remove(part);
    open_ += part.size();
    actions_.ends.push_back({id, part, ElementState::blocked});
    reopened.push_back(part);
  }
  return reopened;
}

// What is at this floor already was opened again just now.
void Scheduler::raise_floor(ArrayId id, Range range) {
  std::vector<Range> raised;
  arrays_[id].for_each_floor(range, [&](Range part, LeaseId floor) {
    if (floor < next_lease_) raised.push_back(part);
  });
  for (const Range& part : raised) record_floor(id, part);
}

// Parts with nothing but ended elements between them are one, because no floor matters for those: a million
// scattered failures are one record.
void Scheduler::record_floor(ArrayId id, Range range) {
  TaskArray& array = arrays_[id];
  std::vector<RecordFloor>& floors = actions_.floors;
  const auto last = last_floors_.find(id);
  if (last != last_floors_.end() && floors[last->second].lease == next_lease_) {
    Range& before = floors[last->second].range;
    const Element next = before.last + 1;
    if (next == range.first || (next < range.first && array.ended.contains({next, range.first - 1}))) {
      before.last = range.last;
      array.floors.set({next, range.last}, next_lease_);
      return;
    }
  }
  last_floors_[id] = floors.size();
  floors.push_back({id, range, next_lease_});
  array.floors.set(range, next_lease_);
}

Actions Scheduler::take_actions() {
  last_floors_.clear();
  return std::exchange(actions_, {});
}

}  // namespace wflow::engine
