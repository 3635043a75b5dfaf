// SPDX-License-Identifier: Apache-2.0
// Samples that conversions could not use: counted per block, summed per step. Memory grows with the blocks
// that have any, not with the samples. No I/O.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/wire/task_event.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

using wire::MissingReason;

// Adds up equal reasons; beyond wire::kMaxReasons the last one stands for all others.
void add_reason(std::vector<MissingReason>& reasons, const MissingReason& reason);
// True if the campaign skipped the samples, since a training had reached its goal.
bool is_skipped(const MissingReason& reason);
// The most frequent first.
void sort_reasons(std::vector<MissingReason>& reasons);

// The array whose samples the array of a convert: step reads, its blocks or its closing task; empty for
// others.
std::optional<specs::ArrayId> converted_array(const specs::Plan& plan, specs::ArrayId array);
// For each array whose samples are converted, the arrays that convert them.
std::multimap<specs::ArrayId, specs::ArrayId> conversions(const specs::Plan& plan);

class MissingSamples {
 public:
  // Takes the report of this block's last execution, which replaces earlier ones.
  void set(specs::ArrayId array, specs::Element block, std::vector<MissingReason> reasons);
  void add(specs::ArrayId array, specs::Element block, const MissingReason& reason);
  // Forgets these blocks, which will be converted again.
  void clear(specs::ArrayId array, Range blocks);
  // The sum over the arrays [first, first + count).
  std::vector<MissingReason> sum(specs::ArrayId first, std::uint32_t count) const;

 private:
  std::map<std::pair<specs::ArrayId, specs::Element>, std::vector<MissingReason>> blocks_;
};

}  // namespace wflow::engine
