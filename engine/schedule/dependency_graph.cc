// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/dependency_graph.h"

#include <algorithm>

namespace wflow::engine {

namespace {

bool all_ended(const TaskArray& array) {
  return array.ended.size() == array.spec.count;
}

Verdict verdict_of(ElementState parent, specs::ContinueOn policy) {
  if (!has_ended(parent)) return Verdict::wait;
  return satisfies(parent, policy) ? Verdict::run : Verdict::skip;
}

// The verdict for a child that waits for `needed`, all of which has ended.
Verdict verdict_of(const TaskArray& parent, Range needed, specs::ContinueOn policy, std::uint64_t& work) {
  Verdict verdict = Verdict::run;
  parent.states.for_each_in(needed, [&](Range, ElementState state) {
    verdict = std::max(verdict, verdict_of(state, policy));
    ++work;
  });
  return verdict;
}

}  // namespace

DependencyGraph::DependencyGraph(const std::vector<TaskArray>& arrays)
    : arrays_(arrays), children_(arrays.size()), ranks_(arrays.size(), 0) {
  for (ArrayId child = 0; child < arrays_.size(); ++child) {
    for (const specs::Edge& edge : arrays_[child].spec.edges) {
      WFLOW_CHECK(edge.parent < arrays_.size());
      children_[edge.parent].push_back({child, edge.kind, edge.block, edge.starts});
    }
  }
  rank_arrays();
}

// An array is ranked when all of its parents are.
void DependencyGraph::rank_arrays() {
  std::vector<std::size_t> unranked(arrays_.size());
  std::vector<ArrayId> list;
  for (ArrayId array = 0; array < arrays_.size(); ++array) {
    unranked[array] = arrays_[array].spec.edges.size();
    if (unranked[array] == 0) list.push_back(array);
  }
  for (std::size_t next = 0; next < list.size(); ++next) {
    for (const Child& child : children_[list[next]]) {
      ranks_[child.array] = std::max(ranks_[child.array], ranks_[list[next]] + 1);
      if (--unranked[child.array] == 0) list.push_back(child.array);
    }
  }
  WFLOW_CHECK(list.size() == arrays_.size());  // a cycle
}

// The child elements that wait for an element of the parent's `range`.
std::optional<Range> DependencyGraph::children_of(const Child& child, Range range) const {
  const std::uint64_t count = arrays_[child.array].spec.count;
  if (count == 0) return std::nullopt;
  Range touched{0, count - 1};
  if (child.kind == specs::EdgeKind::element) touched = range;
  if (child.kind == specs::EdgeKind::block) {
    const Blocks blocks = specs::blocks_of(child.block, child.starts);
    touched = {blocks.block_of(range.first), blocks.block_of(range.last)};
  }
  if (touched.first >= count) return std::nullopt;
  touched.last = std::min(touched.last, count - 1);
  return touched;
}

std::vector<Judged> DependencyGraph::judge(ArrayId child, Range range) const {
  const TaskArray& array = arrays_[child];
  const ArraySpec& spec = array.spec;
  if (spec.bundle > 1) {
    const Blocks bundles = spec.bundles();
    range = {bundles.around(range.first, spec.count).first, bundles.around(range.last, spec.count).end - 1};
  }
  std::vector<Judged> judged = judge_each(child, range);
  if (spec.bundle > 1) hold_incomplete_bundles(array, judged);
  std::erase_if(judged, [](const Judged& part) { return part.second == Verdict::wait; });
  return judged;
}

std::vector<Range> DependencyGraph::with_input(ArrayId array, Range range) const {
  std::vector<Range> parts;
  for (const auto& [part, verdict] : judge_each(array, range)) {
    if (verdict == Verdict::run) parts.push_back(part);
  }
  return parts;
}

std::vector<Judged> DependencyGraph::judge_each(ArrayId child, Range range) const {
  const TaskArray& array = arrays_[child];
  // While a parent of which all is needed has not ended, every element waits.
  for (const specs::Edge& edge : array.spec.edges) {
    if (edge.kind == specs::EdgeKind::all && !all_ended(arrays_[edge.parent])) return {};
  }
  std::vector<Judged> judged;
  array.states.for_each_in(range, [&](Range part, ElementState state) {
    if (state == ElementState::blocked) judged.emplace_back(part, Verdict::run);
    ++work_;
  });
  for (const specs::Edge& edge : array.spec.edges)
    judged = judge_edge(judged, edge, array.spec.policy_of(edge));
  if (gathers_nothing(array.spec)) {
    for (auto& [part, verdict] : judged) {
      if (verdict == Verdict::run) verdict = Verdict::skip;
    }
  }
  return judged;
}

// True if all elements that it gathers were skipped. Requires that all of them have ended.
bool DependencyGraph::gathers_nothing(const ArraySpec& spec) const {
  bool gathers = false;
  for (const specs::Edge& edge : spec.edges) {
    if (spec.policy_of(edge) != specs::ContinueOn::gathered) continue;
    const auto& states = arrays_[edge.parent].states;
    if (states.total(ElementState::done) > 0 || states.total(ElementState::failed) > 0) return false;
    gathers = true;
  }
  return gathers;
}

// Elements of one process start together: those that could run wait for the others of their bundle.
void DependencyGraph::hold_incomplete_bundles(const TaskArray& array, std::vector<Judged>& parts) const {
  const Blocks bundles = array.spec.bundles();
  const std::uint64_t count = array.spec.count;
  IntervalSet free;
  for (const auto& [range, verdict] : parts) {
    if (verdict == Verdict::run) free.add(range);
  }
  for (const auto& [range, verdict] : parts) {
    if (verdict == Verdict::wait)
      free.remove({bundles.around(range.first, count).first, bundles.around(range.last, count).end - 1});
  }
  std::erase_if(parts, [](const Judged& part) { return part.second == Verdict::run; });
  free.for_each_in({0, array.spec.count - 1}, [&](Range r) { parts.emplace_back(r, Verdict::run); });
}

// Splits the parts further by the verdict of one more edge; the worst verdict of all edges counts.
std::vector<Judged> DependencyGraph::judge_edge(const std::vector<Judged>& parts, const specs::Edge& edge,
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
                     [&, before = before](Range r, Verdict verdict) { add(r, std::max(before, verdict)); });
  }
  return result;
}

template <typename Visit>
void DependencyGraph::for_each_verdict(const specs::Edge& edge, Range range, specs::ContinueOn policy,
                                       Visit visit) const {
  const TaskArray& parent = arrays_[edge.parent];
  switch (edge.kind) {
    case specs::EdgeKind::element:
      parent.states.for_each_in(range, [&](Range r, ElementState state) {
        visit(r, verdict_of(state, policy));
        ++work_;
      });
      break;
    case specs::EdgeKind::block:
      for (Element block = range.first; block <= range.last; ++block) {
        const BlockRange items = edge.blocks().items(block, parent.spec.count);
        const Range needed{items.first, items.end - 1};
        const bool waits = !parent.ended.contains(needed);
        visit(Range{block, block}, waits ? Verdict::wait : verdict_of(parent, needed, policy, work_));
      }
      break;
    case specs::EdgeKind::all: {
      Verdict verdict = Verdict::run;  // all of it has ended: see judge()
      for (std::size_t state = 0; state < kElementStates; ++state) {
        const auto s = static_cast<ElementState>(state);
        if (parent.states.total(s) > 0) verdict = std::max(verdict, verdict_of(s, policy));
      }
      visit(range, verdict);
      break;
    }
  }
}

std::vector<Range> DependencyGraph::lacking_input(ArrayId id, Range range) const {
  const ArraySpec& spec = arrays_[id].spec;
  const Blocks bundles = spec.bundles();
  IntervalSet lacking;
  for (const specs::Edge& edge : spec.edges) {
    // The policy that accepts nothing but successes.
    for_each_verdict(edge, range, specs::ContinueOn::never, [&](Range part, Verdict verdict) {
      if (verdict == Verdict::skip)
        lacking.add(
            {bundles.around(part.first, spec.count).first, bundles.around(part.last, spec.count).end - 1});
    });
  }
  // A sample may be left out for the failure of an earlier step of its chain.
  for (Element block = range.first; spec.leaves_out_failed && block <= range.last; ++block) {
    if (!failed_samples(id, {block, block}).empty()) lacking.add({block, block});
  }
  std::vector<Range> parts;
  lacking.for_each([&](Range part) { parts.push_back(part); });
  return parts;
}

// The array, and those whose elements its elements wait for one by one; parents first.
std::vector<ArrayId> DependencyGraph::chain_of(ArrayId array) const {
  std::vector<ArrayId> chain = {array};
  for (std::size_t next = 0; next < chain.size(); ++next) {
    for (const specs::Edge& edge : arrays_[chain[next]].spec.edges) {
      if (edge.kind == specs::EdgeKind::element &&
          std::find(chain.begin(), chain.end(), edge.parent) == chain.end())
        chain.push_back(edge.parent);
    }
  }
  std::sort(chain.begin(), chain.end(),
            [&](ArrayId a, ArrayId b) { return std::pair(ranks_[a], a) < std::pair(ranks_[b], b); });
  return chain;
}

std::vector<ArrayId> DependencyGraph::sources_of(ArrayId follower) const {
  std::vector<ArrayId> sources;
  const auto waits_by_element = [](const specs::Edge& edge) { return edge.kind == specs::EdgeKind::element; };
  for (const specs::Edge& blocks : arrays_[follower].spec.edges) {
    if (blocks.kind != specs::EdgeKind::block) continue;
    for (const specs::Edge& samples : arrays_[blocks.parent].spec.edges) {
      if (samples.kind != specs::EdgeKind::block) continue;
      for (const ArrayId array : chain_of(samples.parent)) {
        if (std::ranges::none_of(arrays_[array].spec.edges, waits_by_element)) sources.push_back(array);
      }
    }
  }
  return sources;
}

std::vector<DependencyGraph::Failed> DependencyGraph::failed_samples(ArrayId conversion, Range blocks) const {
  std::vector<Failed> failed;
  for (const specs::Edge& edge : arrays_[conversion].spec.edges) {
    if (edge.kind != specs::EdgeKind::block) continue;
    const std::uint64_t count = arrays_[edge.parent].spec.count;
    const Range samples{edge.blocks().items(blocks.first, count).first,
                        edge.blocks().items(blocks.last, count).end - 1};
    IntervalMap<std::pair<ArrayId, ElementState>> found;
    for (const ArrayId array : chain_of(edge.parent)) {
      std::vector<std::pair<Range, ElementState>> ends;
      arrays_[array].states.for_each_in(samples, [&](Range part, ElementState state) {
        ++work_;
        if (state != ElementState::done) ends.emplace_back(part, state);
      });
      for (const auto& [part, state] : ends) {
        std::vector<Range> known;
        found.for_each_in(part, [&](Range r, const auto&) { known.push_back(r); });
        Element next = part.first;
        for (const Range& r : known) {
          if (r.first > next) found.set({next, r.first - 1}, {array, state});
          next = r.last + 1;
        }
        if (next <= part.last) found.set({next, part.last}, {array, state});
      }
    }
    found.for_each([&](Range range, const auto& why) { failed.push_back({range, why.first, why.second}); });
  }
  return failed;
}

}  // namespace wflow::engine
