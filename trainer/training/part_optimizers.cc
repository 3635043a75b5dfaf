// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/part_optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace wflow::trainer {
namespace {

const PartConfig* settings_of(const FlatEntry& entry, std::span<const PartConfig> parts) {
  const auto at = std::find_if(parts.begin(), parts.end(),
                               [&](const PartConfig& part) { return part.name == entry.spec.part; });
  return at == parts.end() ? nullptr : &*at;
}

// The settings of parts that have an optimizer of their own.
std::vector<PartConfig> separate_parts(std::span<const PartConfig> parts,
                                       std::span<const std::string> alternating) {
  std::vector<PartConfig> separate;
  const auto alternates = [&](const std::string& name) {
    return std::find(alternating.begin(), alternating.end(), name) != alternating.end();
  };
  for (const PartConfig& part : parts)
    if (!part.freeze && (part.own_optimizer || part.rate != 1 || alternates(part.name)))
      separate.push_back(part);
  for (const std::string& name : alternating) {
    const auto is_named = [&](const PartConfig& part) { return part.name == name; };
    if (std::none_of(parts.begin(), parts.end(), is_named)) separate.emplace_back().name = name;
  }
  return separate;
}

}  // namespace

PartOptimizers::PartOptimizers(const OptimizerConfig& common, std::span<const PartConfig> parts,
                               const FlatLayout& layout, std::span<const std::string> alternating, int ranks,
                               int rank, const AddUp& add_up) {
  const std::vector<PartConfig> separate = separate_parts(parts, alternating);
  const auto add = [&](const OptimizerConfig& config, FlatLayout own, double rate, std::string part) {
    Optimizer optimizer(config, own, StateShards(own, ranks, rank), add_up);
    groups_.push_back({std::move(own), std::move(optimizer), rate, std::move(part)});
  };
  // A group without weights counts the steps of a network whose parts all have settings of their own.
  add(common, layout.some([&](const FlatEntry& entry) {
    return !entry.spec.frozen && settings_of(entry, separate) == nullptr;
  }),
      1, {});
  for (const PartConfig& settings : separate) {
    const OptimizerConfig& config = settings.own_optimizer ? settings.optimizer : common;
    const double proportion = common.learning_rate > 0 ? config.learning_rate / common.learning_rate : 0.0;
    add(config, layout.some([&](const FlatEntry& entry) {
      return entry.spec.part == settings.name && !entry.spec.frozen;
    }),
        settings.rate * proportion, settings.name);
  }
}

void PartOptimizers::step(std::span<float> values, std::span<float> gradients, double learning_rate,
                          std::span<const std::string> learn) {
  for (Group& group : groups_)
    if (learn.empty() || std::find(learn.begin(), learn.end(), group.part) != learn.end())
      group.optimizer.step(values, gradients, learning_rate * group.rate);
}

std::vector<std::int64_t> PartOptimizers::steps() const {
  std::vector<std::int64_t> steps;
  for (const Group& group : groups_) steps.push_back(group.optimizer.steps());
  return steps;
}

void PartOptimizers::set_steps(const std::vector<std::int64_t>& steps) {
  if (steps.size() != 1 && steps.size() != groups_.size())
    throw Error(ExitCode::data,
                fmt::format("the checkpoint has {} optimizers, and the training {}; use --fresh to "
                            "start anew",
                            steps.size(), groups_.size()));
  for (std::size_t g = 0; g < groups_.size(); ++g)
    groups_[g].optimizer.set_steps(steps.size() == 1 ? steps.front() : steps[g]);
}

std::vector<PartOptimizers::Slot> PartOptimizers::slots() {
  std::vector<Slot> slots;
  for (Group& group : groups_)
    for (Optimizer::Slot& slot : group.optimizer.slots())
      slots.push_back({group.layout, group.optimizer.shards(), slot.name, slot.values.span()});
  return slots;
}

}  // namespace wflow::trainer
