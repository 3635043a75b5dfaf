// SPDX-License-Identifier: Apache-2.0
// The scheduler's moves between states.
#include <algorithm>
#include <map>
#include <utility>

#include "engine/schedule/scheduler.h"

namespace wflow::engine {

namespace {

// Sorted and disjoint.
void merge(std::vector<Range>& parts) {
  const auto before = [](const Range& a, const Range& b) { return a.first < b.first; };
  if (!std::is_sorted(parts.begin(), parts.end(), before)) std::sort(parts.begin(), parts.end(), before);
  std::vector<Range> merged;
  for (const Range& part : parts) {
    const bool joins = !merged.empty() && part.first <= merged.back().last + 1;
    joins ? void(merged.back().last = std::max(merged.back().last, part.last)) : merged.push_back(part);
  }
  parts = std::move(merged);
}

}  // namespace

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
  if (state != ElementState::done || counts_successes_) ++bad_ends_;
  if (state != ElementState::skipped && state != ElementState::cancelled) has_begun(id, range);
  disk_.ended(id, range, state);
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
  disk_.forget(id, range);
  forget_unsaved(id, range);
  if (!array.cancel_requested.empty()) array.cancel_requested.remove(range);
  if (!array.ahead.empty()) array.ahead.remove(range);
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
  while (!newly_ended_.empty() || !heard_.empty()) {
    if (newly_ended_.empty()) {
      const EarlyFailure next = std::move(heard_.back());
      heard_.pop_back();
      count_failure(next.outcome, next.worker, next.heard_s);
    } else if (newly_ended_.size() == 1) {
      const auto [parent, range] = newly_ended_.back();
      newly_ended_.pop_back();
      resolve_below(parent, {&range, 1});
    } else {
      std::map<ArrayId, std::vector<Range>> ended;
      for (const auto& [array, range] : std::exchange(newly_ended_, {})) ended[array].push_back(range);
      for (auto& [parent, parts] : ended) {
        merge(parts);
        resolve_below(parent, parts);
      }
    }
  }
}

void Scheduler::resolve(ArrayId array, Range range) {
  std::vector<Range> released;
  for (const auto& [part, verdict] : graph_.judge(array, range)) {
    verdict == Verdict::run ? released.push_back(part) : end(array, part, ElementState::skipped);
  }
  make_ready(array, released);
}

// From blocked or leased to what can be leased: elements that ran before keep their attempt. Those whose
// success has arrived early are done.
void Scheduler::make_ready(ArrayId id, std::span<const Range> parts) {
  TaskArray& array = arrays_[id];
  std::vector<Range> open, fresh;
  if (!array.early_failures.empty()) {
    for (const Range& part : parts) take_early_failures(id, part);
  }
  if (!array.early.empty()) {
    for (const Range& part : parts) {
      for (const Range& rest : apply_early(id, part)) open.push_back(rest);
    }
    parts = open;
  }
  if (!array.attempts.empty()) {
    fresh = delay_known(id, parts);
    parts = fresh;
  }
  if (parts.empty()) return;
  array.states.set(parts, ElementState::ready);
  queue(id, parts);
}

// Called for elements that an earlier coordinator leased and this one would have blocked.
void Scheduler::has_begun(ArrayId id, Range range) {
  if (const auto free = disk_.begun(id, range); !free.empty()) ready_.add(id, free);
}

void Scheduler::queue(ArrayId id, std::span<const Range> parts) {
  if (bad_ends_ == bad_ends_saved_) return queue_saved(id, parts);
  queue_saved(id, wait_for_disk(id, parts));
}

// Simulations may have to wait until the disk has space for their outputs.
void Scheduler::queue_saved(ArrayId id, std::span<const Range> parts) {
  if (parts.empty()) return;
  if (!disk_.limits(id)) return ready_.add(id, parts);
  if (const auto free = disk_.hold_back(id, parts); !free.empty()) ready_.add(id, free);
}

void Scheduler::queue_again(ArrayId id, Element element) {
  const Range one{element, element};
  if (bad_ends_ == bad_ends_saved_ || !wait_for_disk(id, {&one, 1}).empty()) ready_.add_again(id, element);
}

// ---- elements that run although some of their input failed, or that read how it ended

// They wait until those ends are on disk. Returns the other elements.
std::vector<Range> Scheduler::wait_for_disk(ArrayId id, std::span<const Range> parts) {
  if (arrays_[id].spec.after_record) {
    for (const Range& part : parts) unsaved_[id].set(part, bad_ends_);
    return {};
  }
  IntervalSet saved;
  for (const Range& part : parts) saved.add(part);
  for (const Range& part : parts) {
    for (const Range& lacking : graph_.lacking_input(id, part)) {
      std::vector<Range> found;
      saved.for_each_in(lacking, [&](Range one) { found.push_back(one); });
      for (const Range& one : found) unsaved_[id].set(one, bad_ends_);
      saved.remove(lacking);
    }
  }
  std::vector<Range> rest;
  saved.for_each([&](Range part) { rest.push_back(part); });
  return rest;
}

void Scheduler::forget_unsaved(ArrayId id, Range range) {
  const auto at = unsaved_.find(id);
  if (at == unsaved_.end()) return;
  at->second.erase(range);
  if (at->second.empty()) unsaved_.erase(at);
}

void Scheduler::saved() {
  bad_ends_saved_ = bad_ends_in_commit_;
  std::vector<std::pair<ArrayId, Range>> saved;
  for (const auto& [id, waiting] : unsaved_) {
    waiting.for_each([&, id = id](Range part, std::uint64_t ends) {
      if (ends <= bad_ends_saved_) saved.emplace_back(id, part);
    });
  }
  for (const auto& [id, part] : saved) {
    forget_unsaved(id, part);
    queue_saved(id, parts_in(id, part, [](ElementState s) { return s == ElementState::ready; }));
    for (const Range& again : parts_in(id, part, [](ElementState s) { return s == ElementState::delayed; })) {
      for (Element element = again.first; element <= again.last; ++element) ready_.add_again(id, element);
    }
  }
}

// Makes those wait that ran before; returns the others.
std::vector<Range> Scheduler::delay_known(ArrayId id, std::span<const Range> parts) {
  TaskArray& array = arrays_[id];
  std::vector<Range> fresh;
  for (const Range& part : parts) {
    Element next = part.first;
    for (auto at = array.attempts.lower_bound(part.first);
         at != array.attempts.end() && at->first <= part.last; ++at) {
      if (at->first > next) fresh.push_back({next, at->first - 1});
      array.states.set({at->first, at->first}, ElementState::delayed);
      if (at->second.due_s > now_s_) {
        retries_.add({id, at->first, at->second.due_s});
      } else {
        queue_again(id, at->first);
      }
      next = at->first + 1;
    }
    if (next <= part.last) fresh.push_back({next, part.last});
  }
  return fresh;
}

// ---- leases end

// Takes back the parts of the range that the lease held: they are cancelled, run again, or wait for new input
// if they ran on old input.
void Scheduler::give_back(LeaseId lease, ArrayId id, Range range) {
  TaskArray& array = arrays_[id];
  std::vector<Range> cancelled;
  array.cancel_requested.for_each_in(range, [&](Range part) { cancelled.push_back(part); });
  for (const Range& part : cancelled) end(id, part, ElementState::cancelled);
  std::vector<Range> ahead;
  array.ahead.for_each_in(range, [&](Range part) { ahead.push_back(part); });
  for (const Range& part : ahead) wait_again(id, part);
  std::vector<Range> again, invalidated;
  for (const Range& part : parts_in(id, range, [](ElementState s) { return s == ElementState::leased; })) {
    array.for_each_floor(part,
                         [&](Range r, LeaseId floor) { (lease < floor ? invalidated : again).push_back(r); });
  }
  for (const Range& part : array.enough ? std::exchange(again, {}) : std::vector<Range>())
    end(id, part, ElementState::skipped);
  make_ready(id, again);
  for (const Range& part : invalidated) {
    drop_waiting(id, part);
    array.states.set(part, ElementState::blocked);
    resolve(id, part);
  }
  propagate();
}

// ---- opened again

// With everything below that was skipped because of it or has run without it.
std::uint64_t Scheduler::retry_failed(const std::vector<std::pair<ArrayId, Range>>& parts) {
  return reopen(parts, can_retry, [](ElementState) { return true; });
}

std::uint64_t Scheduler::run_again(const std::vector<std::pair<ArrayId, Range>>& parts, bool below) {
  const auto all = [](ElementState) { return true; };
  const auto open = [](ElementState state) { return !has_ended(state); };
  return reopen(
      parts, [](ElementState state) { return state == ElementState::done; }, below ? +all : +open);
}

// Back to blocked, and what `opens_below` accepts of all that hangs below; parents first.
std::uint64_t Scheduler::reopen(const std::vector<std::pair<ArrayId, Range>>& parts,
                                bool (*opens)(ElementState), bool (*opens_below)(ElementState)) {
  std::map<ArrayId, std::vector<Range>> asked;
  for (const auto& [array, range] : parts) asked[array].push_back(range);
  std::map<std::pair<std::uint32_t, ArrayId>, std::vector<Range>> touched;
  const auto touch_below = [&](ArrayId array, std::span<const Range> reopened) {
    graph_.for_each_below(array, reopened, [&](ArrayId child, Range range) {
      touched[{graph_.rank(child), child}].push_back(range);
    });
  };
  std::vector<std::pair<ArrayId, Range>> bounds;  // bounds of reopened parts
  std::uint64_t count = 0;
  for (auto& [array, ranges] : asked) {
    merge(ranges);
    const std::vector<Range> reopened = reopen_in(array, ranges, opens);
    if (reopened.empty()) continue;
    for (const Range& part : reopened) count += part.size();
    bounds.emplace_back(array, Range{reopened.front().first, reopened.back().last});
    touch_below(array, reopened);
  }
  std::map<ArrayId, std::vector<Range>> deleted;
  while (!touched.empty() || !deleted.empty()) {
    if (touched.empty()) {
      auto node = deleted.extract(deleted.begin());
      merge(node.mapped());
      const std::vector<Range> reopened = reopen_in(
          node.key(), node.mapped(), [](ElementState state) { return state == ElementState::done; });
      if (reopened.empty()) continue;
      for (const Range& part : reopened) made_again_ += part.size();
      bounds.emplace_back(node.key(), Range{reopened.front().first, reopened.back().last});
      touch_below(node.key(), reopened);
      continue;
    }
    auto node = touched.extract(touched.begin());
    const ArrayId array = node.key().second;
    merge(node.mapped());
    if (arrays_[array].spec.deletes_input) find_deleted_inputs(array, node.mapped(), opens_below, deleted);
    touch_below(array, reopen_in(array, node.mapped(), opens_below));
  }
  hold_ending();
  for (const auto& [array, range] : bounds) resolve(array, range);
  propagate();
  return count;
}

// Finds inputs that reopened conversions have deleted, or may be deleting now: they must be made again first.
void Scheduler::find_deleted_inputs(ArrayId id, std::span<const Range> parts, bool (*opens)(ElementState),
                                    std::map<ArrayId, std::vector<Range>>& deleted) const {
  const TaskArray& array = arrays_[id];
  for (const Range& part : parts) {
    array.states.for_each_in(part, [&](Range blocks, ElementState state) {
      if (!opens(state) || (state != ElementState::done && state != ElementState::leased)) return;
      for (const specs::Edge& edge : array.spec.edges) {
        if (edge.kind != specs::EdgeKind::block) continue;
        const std::uint64_t count = arrays_[edge.parent].spec.count;
        const Blocks all = edge.blocks();
        deleted[edge.parent].push_back(
            {all.items(blocks.first, count).first, all.items(blocks.last, count).end - 1});
      }
    });
  }
}

// Opens the elements of the parts whose state `opens` accepts, and returns them. An element that waits for
// others that had not ended is blocked, but may have run all the same: on a worker that has been silent
// since.
std::vector<Range> Scheduler::reopen_in(ArrayId id, std::span<const Range> parts,
                                        bool (*opens)(ElementState)) {
  TaskArray& array = arrays_[id];
  std::vector<std::pair<Range, ElementState>> found;
  array.states.change(parts, [&](Range part, ElementState state) {
    ++work_;
    if (!opens(state)) return state;
    found.emplace_back(part, state);
    return state == ElementState::leased ? state : ElementState::blocked;  // leased: invalidated
  });
  if (!found.empty()) array.enough = false;
  raise_floors(id, found);
  std::vector<Range> reopened, ended;
  for (const auto& [part, state] : found) {
    reopened.push_back(part);
    if (state == ElementState::leased) continue;
    if (!has_ended(state)) {
      drop_waiting(id, part);
      continue;
    }
    open_ += part.size();
    actions_.ends.push_back({id, part, ElementState::blocked});
    ended.push_back(part);
  }
  array.ended.remove(ended);
  return reopened;
}

// Parts with nothing but ended elements between them are one, because no floor matters for those: a million
// scattered failures are one record. So are those between which the floor was raised a moment ago.
void Scheduler::raise_floors(ArrayId id, const std::vector<std::pair<Range, ElementState>>& parts) {
  TaskArray& array = arrays_[id];
  std::vector<Range> joined;
  for (const auto& [part, state] : parts) {
    const Element next = joined.empty() ? 0 : joined.back().last + 1;
    const bool joins =
        !joined.empty() && (next == part.first || array.ended.contains({next, part.first - 1}) ||
                            array.floors.is({next, part.first - 1}, next_lease_));
    joins ? void(joined.back().last = part.last) : joined.push_back(part);
  }
  for (const Range& range : joined) {
    if (array.floors.is(range, next_lease_)) continue;  // opened a moment ago
    array.floors.set(range, next_lease_);
    actions_.floors.push_back({id, range, next_lease_});
  }
}

}  // namespace wflow::engine
