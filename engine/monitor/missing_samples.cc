// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/missing_samples.h"

#include <algorithm>

#include "converters/data_set_files.h"
#include "specs/study/blocks.h"

namespace wflow::engine {

namespace {

constexpr const char* kOthers = "other reasons";

}  // namespace

void add_reason(std::vector<MissingReason>& reasons, const MissingReason& reason) {
  if (reason.samples == 0) return;
  auto same = std::ranges::find(reasons, reason.reason, &MissingReason::reason);
  if (same == reasons.end() && reasons.size() < wire::kMaxReasons) {
    reasons.push_back(reason);
    return;
  }
  if (same == reasons.end()) {
    same = std::prev(reasons.end());
    same->reason = kOthers;
  }
  same->samples += reason.samples;
  same->first = std::min(same->first, reason.first);
}

bool is_skipped(const MissingReason& reason) {
  return converters::is_skipped(reason.reason);
}

void sort_reasons(std::vector<MissingReason>& reasons) {
  std::ranges::stable_sort(reasons, std::greater<>(), &MissingReason::samples);
}

std::optional<specs::ArrayId> converted_array(const specs::Plan& plan, specs::ArrayId array) {
  const specs::PlannedStep& step = plan.steps()[plan.step_of(array)];
  if (step.kind != specs::StepKind::convert) return std::nullopt;
  const std::string source = specs::source_step(plan.study().steps[step.study_step]);
  for (const specs::Edge& edge : plan.edges(array)) {
    const specs::PlannedStep& parent = plan.steps()[plan.step_of(edge.parent)];
    if (step.block_samples == 0 && parent.study_step == step.study_step)
      return converted_array(plan, edge.parent);
    if (step.block_samples > 0 && plan.study().steps[parent.study_step].name == source) return edge.parent;
  }
  return std::nullopt;
}

std::multimap<specs::ArrayId, specs::ArrayId> conversions(const specs::Plan& plan) {
  std::multimap<specs::ArrayId, specs::ArrayId> arrays;
  for (const specs::PlannedStep& step : plan.steps()) {
    if (step.kind != specs::StepKind::convert) continue;
    for (specs::ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array) {
      if (const auto source = converted_array(plan, array)) arrays.emplace(*source, array);
    }
  }
  return arrays;
}

void MissingSamples::set(specs::ArrayId array, specs::Element block, std::vector<MissingReason> reasons) {
  if (reasons.empty()) {
    blocks_.erase({array, block});
  } else {
    blocks_[{array, block}] = std::move(reasons);
  }
}

void MissingSamples::add(specs::ArrayId array, specs::Element block, const MissingReason& reason) {
  add_reason(blocks_[{array, block}], reason);
}

void MissingSamples::clear(specs::ArrayId array, Range blocks) {
  blocks_.erase(blocks_.lower_bound({array, blocks.first}), blocks_.upper_bound({array, blocks.last}));
}

std::vector<MissingReason> MissingSamples::sum(specs::ArrayId first, std::uint32_t count) const {
  std::vector<MissingReason> reasons;
  for (auto at = blocks_.lower_bound({first, 0}); at != blocks_.end() && at->first.first < first + count;
       ++at) {
    for (const MissingReason& reason : at->second) add_reason(reasons, reason);
  }
  sort_reasons(reasons);
  return reasons;
}

}  // namespace wflow::engine
