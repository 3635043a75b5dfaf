// SPDX-License-Identifier: Apache-2.0
// Which elements wait for which, and what can run: a function of the elements' states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/task_array.h"

namespace wflow::engine {

// The verdict of an element's edges, a greater one overrules.
enum class Verdict : std::uint8_t { run, skip, wait };
using Judged = std::pair<Range, Verdict>;

class DependencyGraph {
 public:
  // `arrays` outlives the graph.
  explicit DependencyGraph(const std::vector<TaskArray>& arrays);

  // Parents have lower ranks than their children.
  std::uint32_t rank(ArrayId array) const { return ranks_[array]; }

  // Calls visit(ArrayId, Range) for the elements that wait for an element of `parts` of the parent (sorted,
  // disjoint). `visit` may change states.
  template <typename Visit>
  void for_each_below(ArrayId parent, std::span<const Range> parts, Visit visit) const {
    for (const Child& child : children_[parent]) {
      std::optional<Range> joined;
      for (const Range& part : parts) {
        const std::optional<Range> below = children_of(child, part);
        if (!below) continue;
        if (joined && below->first <= joined->last + 1) {
          joined->last = std::max(joined->last, below->last);
        } else {
          if (joined) visit(child.array, *joined);
          joined = below;
        }
        if (child.kind == specs::EdgeKind::all) break;
      }
      if (joined) visit(child.array, *joined);
    }
  }

  // The verdicts for the blocked elements of `range` and of the bundles that it touches: run or skip. Leaves
  // out those that wait.
  std::vector<Judged> judge(ArrayId array, Range range) const;
  // The blocked elements of `range` whose own input is there, whatever the others of their bundle wait for.
  std::vector<Range> with_input(ArrayId array, Range range) const;

  // The elements of `range` that can run, or do, although something that they need has ended without success;
  // with the others of their bundles.
  std::vector<Range> lacking_input(ArrayId array, Range range) const;

  // Samples of these blocks of a conversion, some task of which ended without success: in order and disjoint,
  // each with the first array of its chain that did so. A chain is what elements wait for one by one.
  struct Failed {
    Range range;
    ArrayId array = 0;
    ElementState state = ElementState::failed;
  };
  std::vector<Failed> failed_samples(ArrayId conversion, Range blocks) const;

  // Where the samples begin of the data set that a training follows, which waits for the data set's first
  // blocks: the arrays of their chains that wait for no other sample by sample. None for any other array.
  std::vector<ArrayId> sources_of(ArrayId follower) const;

  // Runs of states visited so far.
  std::uint64_t work() const { return work_; }

 private:
  struct Child {
    ArrayId array;
    specs::EdgeKind kind;
    std::uint64_t block;
    specs::BlockStarts starts;
  };

  void rank_arrays();
  std::optional<Range> children_of(const Child& child, Range range) const;
  std::vector<Judged> judge_each(ArrayId array, Range range) const;
  std::vector<ArrayId> chain_of(ArrayId array) const;
  bool gathers_nothing(const ArraySpec& spec) const;
  void hold_incomplete_bundles(const TaskArray& array, std::vector<Judged>& parts) const;
  std::vector<Judged> judge_edge(const std::vector<Judged>& parts, const specs::Edge& edge,
                                 specs::ContinueOn policy) const;
  template <typename Visit>
  void for_each_verdict(const specs::Edge& edge, Range range, specs::ContinueOn policy, Visit visit) const;

  const std::vector<TaskArray>& arrays_;
  std::vector<std::vector<Child>> children_;
  std::vector<std::uint32_t> ranks_;
  mutable std::uint64_t work_ = 0;
};

}  // namespace wflow::engine
