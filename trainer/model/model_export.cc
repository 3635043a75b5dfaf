// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

at::Tensor tensor_of(const ModuleScale& scale) {
  at::Tensor tensor =
      at::empty({static_cast<std::int64_t>(scale.values.size())}, at::TensorOptions().dtype(at::kDouble));
  std::copy(scale.values.begin(), scale.values.end(), tensor.data_ptr<double>());
  return tensor.to(scale.wide ? at::kDouble : at::kFloat).view(scale.shape);
}

template <class T>
c10::IValue value_of(const T& one) {
  return one;
}

template <class T>
c10::IValue value_of(const std::vector<T>& values) {
  c10::List<T> list;
  for (const auto& value : values) list.push_back(value);
  return list;
}

template <class T>
c10::IValue value_of(const std::vector<std::vector<T>>& values) {
  c10::List<c10::List<T>> lists;
  for (const std::vector<T>& value : values) lists.push_back(value_of(value).template to<c10::List<T>>());
  return lists;
}

// Source that combines the members' outputs, [members, samples, channels, ...], into mean and deviation of
// their mixture.
const char* combination(LossName loss) {
  if (is_classification(loss)) return "    return each.mean([0])\n";
  if (loss != LossName::gaussian) return "    return torch.cat([each.mean([0]), each.std([0], False)], 1)\n";
  // The mean variance that the members predict, plus the variance of their means.
  return "    half = each.size(2) // 2\n"
         "    means = each.narrow(2, 0, half)\n"
         "    deviations = each.narrow(2, half, half)\n"
         "    variance = (deviations * deviations).mean([0]) + means.var([0], False)\n"
         "    return torch.cat([means.mean([0]), variance.sqrt()], 1)\n";
}

// The density of all members: the sum of their components, which have the weights of their member, divided by
// the number of members. Values as in MixtureDensity.
std::string combined_density(std::int64_t components, std::int64_t numbers) {
  const std::int64_t below = numbers * (numbers - 1) / 2;
  const std::int64_t means = components * numbers;
  return fmt::format(
      "    rows = each.size(1)\n"
      "    mean = each.narrow(2, 0, {0}).mean([0])\n"
      "    weights = torch.log_softmax(each.narrow(2, {0}, {1}), 2)\n"
      "    offsets = each.narrow(2, {0} + {1}, {2}).reshape([-1, rows, {1}, {0}])\n"
      "    centre = torch.sum(torch.mul(torch.exp(weights).unsqueeze(3), offsets), [2], True)\n"
      "    means = each.narrow(2, 0, {0}).unsqueeze(2) + offsets - centre - mean.unsqueeze(0).unsqueeze(2)\n"
      "    diagonals = each.narrow(2, {0} + {1} + {2}, {2}).permute([1, 0, 2]).reshape([rows, -1])\n"
      "    below = each.narrow(2, {0} + {1} + 2 * {2}, {3}).permute([1, 0, 2]).reshape([rows, -1])\n"
      "    return torch.cat([mean, weights.permute([1, 0, 2]).reshape([rows, -1]), "
      "means.permute([1, 0, 2, 3]).reshape([rows, -1]), diagonals, below], 1)\n",
      numbers, components, means, components * below);
}

// `combinations`: for each head the body of a method that combines the members' outputs, `each`. With several
// heads, the members return tuples.
std::string ensemble_source(std::size_t members, std::size_t inputs,
                            const std::vector<std::string>& combinations) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < inputs; ++i) names.push_back(fmt::format("x{}", i));
  const std::string arguments = text::join(names, ", ");
  std::string source = fmt::format("def members(self, {}):\n", arguments);
  for (std::size_t k = 0; k < members; ++k)
    source += fmt::format("    y{0} = self.member_{1}.forward({2})\n", k, k + 1, arguments);
  std::vector<std::string> stacks;
  std::vector<std::string> results;
  std::string methods;
  for (std::size_t h = 0; h < combinations.size(); ++h) {
    const std::string of_head = combinations.size() > 1 ? fmt::format("[{}]", h) : "";
    std::vector<std::string> each;
    for (std::size_t k = 0; k < members; ++k) each.push_back(fmt::format("y{}{}", k, of_head));
    stacks.push_back(fmt::format("torch.stack([{}])", text::join(each, ", ")));
    results.push_back(fmt::format("self.combined{}(each{})", h, of_head));
    methods += fmt::format("def combined{}(self, each):\n{}", h, combinations[h]);
  }
  const auto returned = [](const std::vector<std::string>& values) {
    return fmt::format("    return {}\n", text::join(values, ", "));
  };
  return source + returned(stacks) + methods +
         fmt::format("def forward(self, {0}):\n    each = self.members({0})\n", arguments) +
         returned(results);
}

// The loss whose outputs the ensemble has.
LossName loss_of_ensemble(LossName loss) {
  return is_classification(loss) || loss == LossName::mixture ? loss : LossName::gaussian;
}

// Source that combines the outputs of a head with `targets` targets.
std::string combination_of(const LossConfig& loss, std::size_t targets) {
  if (loss.name == LossName::mixture)
    return combined_density(loss.components, static_cast<std::int64_t>(targets));
  return combination(loss.name);
}

// Adds the attributes that the ensemble shares with its members, and the losses that describe its outputs.
// Returns, for each head, the source that combines the members' outputs.
std::vector<std::string> describe_ensemble(const torch::jit::Module& member,
                                           std::span<const LossConfig> losses, torch::jit::Module& ensemble) {
  for (const char* name : {"inputs", "targets", "metric_names", "metric_formulas", "columns", "shapes",
                           "ranges", "target_grid", "target_has_channels", "units", "heads", "head_units",
                           "head_targets", "head_grids", "head_has_channels", "head_quantiles"})
    if (member.hasattr(name)) ensemble.register_attribute(name, member.attr(name).type(), member.attr(name));
  if (!member.hasattr("heads")) {
    ensemble.register_attribute("loss", c10::StringType::get(),
                                std::string(name_of(loss_of_ensemble(losses.front().name))));
    return {combination_of(losses.front(), member.attr("targets").toListRef().size())};
  }
  c10::List<std::string> names;
  std::vector<std::string> combinations;
  for (std::size_t h = 0; h < losses.size(); ++h) {
    names.push_back(std::string(name_of(loss_of_ensemble(losses[h].name))));
    combinations.push_back(
        combination_of(losses[h], member.attr("head_targets").toListRef()[h].toListRef().size()));
  }
  ensemble.register_attribute("head_losses", c10::ListType::ofStrings(), names);
  return combinations;
}

}  // namespace

void export_module(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                   const std::filesystem::path& path) {
  try {
    torch::jit::Module module("WflowModel");
    module.register_module("network", module_with_values(graph.layers.front(), state));
    const ModuleMembers members = members_of(graph, units);
    for (const ModuleScale& scale : members.scales) module.register_buffer(scale.name, tensor_of(scale));
    for (const auto& [name, attribute] : members.attributes) {
      const c10::IValue value = std::visit([](const auto& of) { return value_of(of); }, attribute);
      module.register_attribute(name, value.type(), value);
    }
    module.define(torchscript_source(graph, units));
    module.eval();
    DurableFile file(path);
    module.save(file.temporary().string());
    file.publish();
  } catch (const c10::Error& error) {
    throw Error(ExitCode::internal, fmt::format("cannot export the network to {}: {}", path.string(),
                                                error.what_without_backtrace()));
  }
}

void export_ensemble(const std::vector<std::filesystem::path>& members, std::span<const LossConfig> losses,
                     const std::filesystem::path& path) {
  try {
    torch::jit::Module ensemble("WflowEnsemble");
    std::vector<std::string> combinations;
    for (std::size_t k = 0; k < members.size(); ++k) {
      const torch::jit::Module member = torch::jit::load(members[k].string(), c10::kCPU);
      ensemble.register_module(fmt::format("member_{}", k + 1), member);
      if (k == 0) combinations = describe_ensemble(member, losses, ensemble);
    }
    ensemble.register_attribute("wflow", c10::StringType::get(), std::string(kVersion));
    ensemble.define(
        ensemble_source(members.size(), ensemble.attr("inputs").toListRef().size(), combinations));
    ensemble.eval();
    DurableFile file(path);
    ensemble.save(file.temporary().string());
    file.publish();
  } catch (const c10::Error& error) {
    throw Error(ExitCode::internal, fmt::format("cannot export the ensemble to {}: {}", path.string(),
                                                error.what_without_backtrace()));
  }
}

}  // namespace wflow::trainer
