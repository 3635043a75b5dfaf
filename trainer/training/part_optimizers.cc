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

std::vector<ParameterSpec> specs_of(const std::vector<FlatEntry>& entries) {
  std::vector<ParameterSpec> specs;
  for (const FlatEntry& entry : entries) specs.push_back(entry.spec);
  return specs;
}

std::span<float> part(std::span<float> all, const FlatEntry& entry) {
  return all.subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.count));
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
                               const FlatLayout& layout, std::span<const std::string> alternating,
                               const StateShards* shards, const AddUp& add_up) {
  const std::vector<PartConfig> separate = separate_parts(parts, alternating);
  std::vector<FlatEntry> remaining;
  for (const FlatEntry& entry : layout.entries)
    if (!entry.spec.frozen && settings_of(entry, separate) == nullptr) remaining.push_back(entry);
  whole_ = remaining.size() == layout.entries.size();
  WFLOW_CHECK(whole_ || shards == nullptr || !shards->active());
  // A group without weights counts the steps of a network whose parts all have settings of their own.
  const FlatLayout all(specs_of(remaining));
  add(whole_ && shards != nullptr ? Optimizer(common, all, *shards, add_up) : Optimizer(common, all), 1,
      std::move(remaining), all, {});
  for (const PartConfig& settings : separate) {
    std::vector<FlatEntry> entries;
    for (const FlatEntry& entry : layout.entries)
      if (entry.spec.part == settings.name && !entry.spec.frozen) entries.push_back(entry);
    const OptimizerConfig& config = settings.own_optimizer ? settings.optimizer : common;
    const double proportion = common.learning_rate > 0 ? config.learning_rate / common.learning_rate : 0.0;
    const FlatLayout own(specs_of(entries));
    add(Optimizer(config, own), settings.rate * proportion, std::move(entries), own, settings.name);
  }
}

void PartOptimizers::add(Optimizer optimizer, double rate, std::vector<FlatEntry> entries, FlatLayout layout,
                         std::string part) {
  const std::int64_t size = layout.size;
  groups_.push_back({std::move(entries), std::move(layout), std::move(optimizer), rate, std::move(part)});
  if (whole_) return;
  groups_.back().values = FloatBuffer(size);
  groups_.back().gradients = FloatBuffer(size);
}

void PartOptimizers::step(std::span<float> values, std::span<float> gradients, double learning_rate,
                          std::span<const std::string> learn) {
  if (whole_) {
    groups_.front().optimizer.step(values, gradients, learning_rate);
    return;
  }
  for (Group& group : groups_)
    if (learn.empty() || std::find(learn.begin(), learn.end(), group.part) != learn.end())
      step(group, values, gradients, learning_rate * group.rate);
}

void PartOptimizers::step(Group& group, std::span<float> values, std::span<float> gradients,
                          double learning_rate) {
  for (std::size_t i = 0; i < group.entries.size(); ++i) {
    const FlatEntry& packed = group.layout.entries[i];
    std::ranges::copy(part(values, group.entries[i]), part(group.values.span(), packed).begin());
    std::ranges::copy(part(gradients, group.entries[i]), part(group.gradients.span(), packed).begin());
  }
  group.optimizer.step(group.values.span(), group.gradients.span(), learning_rate);
  for (std::size_t i = 0; i < group.entries.size(); ++i)
    std::ranges::copy(part(group.values.span(), group.layout.entries[i]),
                      part(values, group.entries[i]).begin());
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
