// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/version.h"
#include "trainer/model/layer_constants.h"
#include "trainer/model/torch_layers.h"
#include "trainer/model/torchscript_sequence.h"

namespace wflow::trainer {
namespace {

at::Tensor tensor_of(const FlatEntry& entry, std::span<const float> all) {
  // libtorch has no tensors of constants; the module is written while the state is there, and not changed.
  auto* begin = const_cast<float*>(all.data()) + entry.offset;
  return at::from_blob(begin, entry.spec.shape, at::TensorOptions().dtype(at::kFloat));
}

at::Tensor tensor_of(const std::vector<double>& values, const std::vector<std::int64_t>& shape, bool wide) {
  at::Tensor tensor =
      at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(at::kDouble));
  std::copy(values.begin(), values.end(), tensor.data_ptr<double>());
  return tensor.to(wide ? at::kDouble : at::kFloat).view(shape);
}

// Adds mean and deviation of an input; for one cell in float64 (torchscript_source).
void add_scale(torch::jit::Module& module, const std::string& name, const FieldScale& scale,
               const TensorShape& input, bool field) {
  const bool wide = input.voxels() == 1 || scale.needs_double();
  const auto shape = field ? std::vector<std::int64_t>{1, -1, 1, 1, 1} : std::vector<std::int64_t>{1, 1};
  module.register_buffer(name + "_mean", tensor_of(scale.mean, shape, wide));
  module.register_buffer(name + "_std", tensor_of(scale.std, shape, wide));
}

void add_network(torch::jit::Module& module, const ModelGraph& graph, const FlatState& state) {
  if (graph.is_module()) {
    module.register_module("network", module_with_values(graph.layers.front(), state));
    return;
  }
  // The graph may be a part of the network that the state is of.
  for (const ParameterSpec& spec : graph.parameters())
    module.register_parameter(member_of(spec.name),
                              tensor_of(*state.parameters().find(spec.name), state.values()), false);
  for (const ParameterSpec& spec : graph.buffers())
    module.register_buffer(member_of(spec.name),
                           tensor_of(*state.buffers().find(spec.name), state.buffer_values()));
  for (const Layer& layer : graph.layers) {
    for (const LayerConstant& constant : constants_of(layer)) {
      const std::vector<double> values(constant.values.begin(), constant.values.end());
      module.register_buffer(member_of(constant.name), tensor_of(values, constant.shape, false));
    }
  }
}

c10::List<std::string> string_list(const std::vector<std::string>& strings) {
  c10::List<std::string> list;
  for (const std::string& text : strings) list.push_back(text);
  return list;
}

c10::List<double> real_list(const std::vector<double>& numbers) {
  c10::List<double> list;
  for (const double number : numbers) list.push_back(number);
  return list;
}

const char* units_of(const OutputUnits& output) {
  return output.keeps_transform() ? "transformed" : "physical";
}

void describe_one_output(torch::jit::Module& module, const OutputUnits& output) {
  module.register_attribute("loss", c10::StringType::get(), std::string(name_of(output.loss)));
  module.register_attribute("units", c10::StringType::get(), std::string(units_of(output)));
  if (!output.quantiles.empty())
    module.register_attribute("quantiles", c10::ListType::ofFloats(), real_list(output.quantiles));
  module.register_attribute("target_grid", c10::ListType::ofInts(), c10::IValue(output.grid));
  module.register_attribute("target_has_channels", c10::BoolType::get(), output.has_channels);
}

void describe_heads(torch::jit::Module& module, const std::vector<OutputUnits>& outputs) {
  c10::List<std::string> names, losses, units;
  c10::List<c10::List<std::string>> targets;
  c10::List<c10::List<std::int64_t>> grids;
  c10::List<bool> has_channels;
  c10::List<c10::List<double>> quantiles;
  for (const OutputUnits& output : outputs) {
    names.push_back(output.name);
    losses.push_back(std::string(name_of(output.loss)));
    units.push_back(std::string(units_of(output)));
    targets.push_back(string_list(output.targets));
    grids.push_back(c10::List<std::int64_t>(c10::ArrayRef<std::int64_t>(output.grid)));
    has_channels.push_back(output.has_channels);
    quantiles.push_back(real_list(output.quantiles));
  }
  module.register_attribute("heads", c10::ListType::ofStrings(), names);
  module.register_attribute("head_losses", c10::ListType::ofStrings(), losses);
  module.register_attribute("head_units", c10::ListType::ofStrings(), units);
  module.register_attribute("head_targets", c10::ListType::create(c10::ListType::ofStrings()), targets);
  module.register_attribute("head_grids", c10::ListType::create(c10::ListType::ofInts()), grids);
  module.register_attribute("head_has_channels", c10::ListType::ofBools(), has_channels);
  module.register_attribute("head_quantiles", c10::ListType::create(c10::ListType::ofFloats()), quantiles);
}

// Scales of the outputs, and the attributes that describe them.
void add_outputs(torch::jit::Module& module, const std::vector<OutputUnits>& outputs) {
  std::vector<std::string> targets;
  for (std::size_t h = 0; h < outputs.size(); ++h) {
    const OutputUnits& output = outputs[h];
    const std::string name = h == 0 ? "y" : "y" + std::to_string(h);
    const std::vector<std::int64_t> shape =
        output.fields ? std::vector<std::int64_t>{1, -1, 1, 1, 1} : std::vector<std::int64_t>{1, -1};
    module.register_buffer(name + "_mean", tensor_of(output.mean, shape, output.needs_double()));
    module.register_buffer(name + "_std", tensor_of(output.deviation, shape, output.needs_double()));
    targets.insert(targets.end(), output.targets.begin(), output.targets.end());
  }
  module.register_attribute("targets", c10::ListType::ofStrings(), string_list(targets));
  if (outputs.size() == 1) {
    describe_one_output(module, outputs.front());
  } else {
    describe_heads(module, outputs);
  }
}

void add_metrics(torch::jit::Module& module, const std::vector<MetricConfig>& metrics) {
  if (metrics.empty()) return;
  c10::List<std::string> names, formulas;
  for (const MetricConfig& metric : metrics) {
    names.push_back(metric.name);
    formulas.push_back(metric.formula);
  }
  module.register_attribute("metric_names", c10::ListType::ofStrings(), names);
  module.register_attribute("metric_formulas", c10::ListType::ofStrings(), formulas);
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

void export_model(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                  const std::string& path) {
  try {
    torch::jit::Module module("WflowModel");
    add_network(module, graph, state);
    const Normalisation& normalisation = units.normalisation;
    add_outputs(module, units.outputs);
    add_metrics(module, units.metrics);
    c10::List<std::string> inputs;
    std::size_t number = 0;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      inputs.push_back(graph.inputs[i].name);
      const std::string name = graph.inputs[i].name == kField ? "x" : "in" + std::to_string(i);
      if (const auto scale = normalisation.of_field(graph.inputs[i].name)) {
        add_scale(module, name, *scale, graph.inputs[i].shape, true);
        continue;
      }
      add_scale(module, name, {{normalisation.numbers_mean[number]}, {normalisation.numbers_std[number]}},
                graph.inputs[i].shape, false);
      ++number;
    }
    module.register_attribute("inputs", c10::ListType::ofStrings(), inputs);
    std::vector<std::string> drawn = units.random_inputs;
    std::erase_if(drawn, [&](const std::string& name) {
      return std::ranges::find(graph.inputs, name, &NamedShape::name) == graph.inputs.end();
    });
    module.register_attribute("random_inputs", c10::ListType::ofStrings(), string_list(drawn));
    c10::List<c10::List<std::string>> columns;
    for (const std::vector<std::string>& of_input : units.columns) {
      columns.push_back(string_list(of_input));
    }
    module.register_attribute("columns", c10::ListType::create(c10::ListType::ofStrings()), columns);
    c10::List<c10::List<std::int64_t>> shapes;
    c10::List<c10::List<double>> ranges;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      const TensorShape& shape = graph.inputs[i].shape;
      shapes.push_back(
          c10::List<std::int64_t>({shape.channels, shape.extent[0], shape.extent[1], shape.extent[2]}));
      c10::List<double> of_input;
      for (std::size_t c = 0; i < units.ranges.size() && c < units.ranges[i].size(); ++c) {
        of_input.push_back(units.ranges[i][c].first);
        of_input.push_back(units.ranges[i][c].second);
      }
      ranges.push_back(of_input);
    }
    module.register_attribute("shapes", c10::ListType::create(c10::ListType::ofInts()), shapes);
    module.register_attribute("ranges", c10::ListType::create(c10::ListType::ofFloats()), ranges);
    module.register_attribute("wflow", c10::StringType::get(), std::string(kVersion));
    module.define(torchscript_source(graph, units));
    module.eval();
    DurableFile file(path);
    module.save(file.temporary().string());
    file.publish();
  } catch (const c10::Error& error) {
    throw Error(ExitCode::internal,
                "cannot export the network to " + path + ": " + error.what_without_backtrace());
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
