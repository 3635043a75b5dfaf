// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "trainer/model/tiles.h"

namespace wflow::trainer {
namespace {

// Units of values that are neither inputs nor heads: they stay as the network computes them.
OutputUnits plain_units(const std::string& name, const TensorShape& shape) {
  OutputUnits units;
  units.name = name;
  units.fields = shape.voxels() > 1;
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    units.targets.push_back(shape.channels == 1 ? name : name + std::to_string(c));
    units.mean.push_back(0);
    units.deviation.push_back(1);
  }
  if (units.fields)
    for (const std::int64_t cells : shape.extent)
      if (cells > 1 || !units.grid.empty()) units.grid.push_back(cells);
  return units;
}

// True for the layers that lead to the values.
std::vector<bool> layers_before(const ModelGraph& graph, const std::vector<std::size_t>& values) {
  std::vector<bool> needed(graph.inputs.size() + graph.layers.size(), false);
  for (const std::size_t value : values) needed[value] = true;
  for (std::size_t i = graph.layers.size(); i-- > 0;)
    if (needed[graph.inputs.size() + i])
      for (const std::size_t value : graph.layers[i].inputs) needed[value] = true;
  return {needed.begin() + static_cast<std::ptrdiff_t>(graph.inputs.size()), needed.end()};
}

// Cuts some layers out of a graph and numbers its values anew.
class Cutter {
 public:
  Cutter(const ModelGraph& graph, const ExportedUnits& units, std::vector<bool> own)
      : graph_(graph), units_(units), own_(std::move(own)) {
    model_.units.transform = units.transform;
    model_.units.normalisation.x_mean = units.normalisation.x_mean;
    model_.units.normalisation.x_std = units.normalisation.x_std;
    model_.units.normalisation.fields = units.normalisation.fields;
    model_.units.without_channels = units.without_channels;
    model_.units.random_inputs = units.random_inputs;
  }

  // With the values that the other layers read as outputs.
  PartModel cut() {
    cut_layers();
    for (std::size_t i = 0; i < graph_.layers.size(); ++i)
      if (is_own(i) && is_read_outside(i)) add_output(value_of(i));
    if (model_.units.outputs.size() == 1) model_.units.outputs.front().name.clear();
    return std::move(model_);
  }

  PartModel cut(std::span<const std::size_t> heads) {
    cut_layers();
    model_.units.metrics = units_.metrics;
    for (const std::size_t head : heads) {
      const ModelGraph::Output& output = graph_.outputs[graph_.output_of_head(head, units_.outputs.size())];
      model_.graph.outputs.push_back({output.name, numbers_.at(output.value)});
      model_.units.outputs.push_back(units_.outputs[head]);
    }
    return std::move(model_);
  }

 private:
  std::size_t value_of(std::size_t layer) const { return graph_.inputs.size() + layer; }
  bool is_own(std::size_t layer) const { return own_[layer]; }

  void cut_layers() {
    for (std::size_t i = 0; i < graph_.layers.size(); ++i)
      if (is_own(i))
        for (const std::size_t value : graph_.layers[i].inputs) add_input(value);
    for (std::size_t i = 0; i < graph_.layers.size(); ++i)
      if (is_own(i)) add_layer(i);
  }

  void add_input(std::size_t value) {
    const bool is_layer = value >= graph_.inputs.size();
    if (numbers_.contains(value) || (is_layer && is_own(value - graph_.inputs.size()))) return;
    numbers_[value] = model_.graph.inputs.size();
    const std::string& name =
        is_layer ? graph_.layers[value - graph_.inputs.size()].name : graph_.inputs[value].name;
    model_.graph.inputs.push_back({name, graph_.shape_of(value)});
    if (is_layer) {
      const auto channels = static_cast<std::size_t>(graph_.shape_of(value).channels);
      model_.units.normalisation.fields[name] = {std::vector<double>(channels, 0.0),
                                                 std::vector<double>(channels, 1.0), false};
      model_.units.columns.emplace_back();
      model_.units.ranges.emplace_back();
      return;
    }
    model_.units.columns.push_back(value < units_.columns.size() ? units_.columns[value]
                                                                 : std::vector<std::string>());
    model_.units.ranges.push_back(value < units_.ranges.size() ? units_.ranges[value]
                                                               : std::vector<std::pair<double, double>>());
    if (units_.normalisation.of_field(name)) return;
    const std::size_t number = number_of(value);
    model_.units.normalisation.numbers_mean.push_back(units_.normalisation.numbers_mean.at(number));
    model_.units.normalisation.numbers_std.push_back(units_.normalisation.numbers_std.at(number));
  }

  // The place of an input that is a label among those that are.
  std::size_t number_of(std::size_t input) const {
    std::size_t number = 0;
    for (std::size_t i = 0; i < input; ++i)
      if (!units_.normalisation.of_field(graph_.inputs[i].name)) ++number;
    return number;
  }

  void add_layer(std::size_t index) {
    Layer layer = graph_.layers[index];
    for (std::size_t& value : layer.inputs) value = numbers_.at(value);
    numbers_[value_of(index)] = model_.graph.inputs.size() + model_.graph.layers.size();
    model_.graph.layers.push_back(std::move(layer));
  }

  bool is_read_outside(std::size_t index) const {
    const std::size_t value = value_of(index);
    for (std::size_t i = 0; i < graph_.layers.size(); ++i) {
      const std::vector<std::size_t>& inputs = graph_.layers[i].inputs;
      if (!is_own(i) && std::find(inputs.begin(), inputs.end(), value) != inputs.end()) return true;
    }
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [value](const ModelGraph::Output& output) { return output.value == value; });
  }

  std::optional<std::size_t> head_with(std::size_t value) const {
    for (std::size_t h = 0; h < units_.outputs.size(); ++h)
      if (graph_.outputs[graph_.output_of_head(h, units_.outputs.size())].value == value) return h;
    return std::nullopt;
  }

  void add_output(std::size_t value) {
    const std::string& name = graph_.layers[value - graph_.inputs.size()].name;
    model_.graph.outputs.push_back({name, numbers_.at(value)});
    const auto head = head_with(value);
    model_.units.outputs.push_back(head ? units_.outputs[*head] : plain_units(name, graph_.shape_of(value)));
  }

  const ModelGraph& graph_;
  const ExportedUnits& units_;
  const std::vector<bool> own_;
  PartModel model_;
  std::map<std::size_t, std::size_t> numbers_;  // of the graph's values in the part
};

}  // namespace

std::vector<std::string> part_names(const ModelGraph& graph) {
  std::vector<std::string> names;
  for (const Layer& layer : graph.layers)
    if (!layer.part.empty() && std::find(names.begin(), names.end(), layer.part) == names.end())
      names.push_back(layer.part);
  return names;
}

bool is_scaled_by_data(const ModelGraph& graph, std::size_t layer, std::span<const std::string> kept) {
  const Layer& candidate = graph.layers[layer];
  if (candidate.is_repeated || candidate.frozen ||
      std::find(kept.begin(), kept.end(), candidate.part) != kept.end())
    return false;
  if (candidate.kind != LayerKind::convolution && candidate.kind != LayerKind::linear) return false;
  const bool is_output =
      std::any_of(graph.outputs.begin(), graph.outputs.end(),
                  [&](const ModelGraph::Output& out) { return out.value == graph.inputs.size() + layer; });
  const bool before_tanh =
      layer + 1 < graph.layers.size() && graph.layers[layer + 1].kind == LayerKind::tanh_scale;
  const bool chosen = candidate.init != LayerInit::automatic;
  return !is_output && !before_tanh && !chosen && candidate.parameters.size() == 2;
}

void apply_parts(ModelGraph& graph, std::span<const PartConfig> parts) {
  const std::vector<std::string> known = part_names(graph);
  for (const PartConfig& part : parts) {
    if (std::find(known.begin(), known.end(), part.name) == known.end())
      throw Error(
          ExitCode::spec,
          known.empty()
              ? fmt::format("'parts' names '{}', and the network has no named parts: say 'part: {}' in "
                            "its layers",
                            part.name, part.name)
              : fmt::format("'parts' names '{}', and the network's parts are {}{}", part.name,
                            text::join(known, ", "), text::suggestion(part.name, known)));
    for (Layer& layer : graph.layers)
      if (layer.part == part.name) layer.frozen = part.freeze;
  }
  const bool learns = std::any_of(graph.layers.begin(), graph.layers.end(), [](const Layer& layer) {
    return !layer.frozen && !layer.parameters.empty();
  });
  if (!learns && !parts.empty())
    throw Error(ExitCode::spec, "'parts' freezes every layer that has weights: nothing is left to learn");
}

namespace {

// Some layers of a graph, with its inputs; values that no layer gives are inputs of the same numbers.
ModelGraph some_layers(const ModelGraph& graph, const std::vector<bool>& needed,
                       std::vector<std::size_t> numbers, std::size_t inputs,
                       std::span<const std::string> learn, std::span<const ModelGraph::Output> outputs) {
  ModelGraph cut;
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    if (!needed[i]) continue;
    Layer layer = graph.layers[i];
    for (std::size_t& value : layer.inputs) value = numbers[value];
    if (!learn.empty() && std::find(learn.begin(), learn.end(), layer.part) == learn.end())
      layer.frozen = true;
    numbers[graph.inputs.size() + i] = inputs + cut.layers.size();
    cut.layers.push_back(std::move(layer));
  }
  for (const ModelGraph::Output& output : outputs)
    cut.outputs.push_back({output.name, numbers[output.value]});
  return cut;
}

}  // namespace

ModelGraph update_graph(const ModelGraph& graph, std::span<const ModelGraph::Output> outputs,
                        std::span<const std::string> learn) {
  std::vector<std::size_t> values;
  for (const ModelGraph::Output& output : outputs) values.push_back(output.value);
  std::vector<std::size_t> numbers(graph.inputs.size() + graph.layers.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  ModelGraph cut = some_layers(graph, layers_before(graph, values), std::move(numbers), graph.inputs.size(),
                               learn, outputs);
  cut.inputs = graph.inputs;
  cut.recomputes = graph.recomputes;
  if (!graph.tiled.empty()) cut.tiled = best_tiles(cut);
  return cut;
}

ModelGraph path_graph(const ModelGraph& graph, std::size_t from, const ModelGraph::Output& to,
                      std::span<const std::string> learn) {
  constexpr std::size_t kOutside = std::numeric_limits<std::size_t>::max();
  const std::size_t inputs = graph.inputs.size();
  std::vector<bool> depends(inputs + graph.layers.size(), false);
  depends[from] = true;
  std::vector<bool> needed = layers_before(graph, {to.value});
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const Layer& layer = graph.layers[i];
    if (inputs + i == from) continue;
    const auto reads = [&](std::size_t value) { return depends[value]; };
    depends[inputs + i] = std::any_of(layer.inputs.begin(), layer.inputs.end(), reads);
    needed[i] = needed[i] && depends[inputs + i];
    if (!needed[i]) continue;
    if (!std::all_of(layer.inputs.begin(), layer.inputs.end(), reads))
      throw Error(ExitCode::spec,
                  fmt::format("'gradient_penalty' of '{}': the layer '{}' also reads what does not "
                              "depend on its 'from'",
                              to.name, layer.name));
    if (layer.kind == LayerKind::batch_norm)
      throw Error(
          ExitCode::spec,
          fmt::format("'gradient_penalty' of '{}' is of each sample by itself, and the batch norm '{}' mixes "
                      "the samples: use group_norm, layer_norm or none",
                      to.name, layer.name));
  }
  if (from >= inputs) needed[from - inputs] = false;
  if (!depends[to.value] || to.value == from)
    throw Error(ExitCode::spec,
                fmt::format("'gradient_penalty' of '{}': it does not depend on its 'from'", to.name));
  std::vector<std::size_t> numbers(depends.size(), kOutside);
  numbers[from] = 0;
  ModelGraph cut = some_layers(graph, needed, std::move(numbers), 1, learn, {&to, 1});
  cut.inputs = {{"from", graph.shape_of(from)}};
  cut.learns_input = true;
  return cut;
}

std::pair<std::int64_t, std::int64_t> learned_range(const ModelGraph& graph, const FlatLayout& layout) {
  std::int64_t begin = layout.size;
  std::int64_t end = 0;
  for (const ParameterSpec& spec : graph.parameters()) {
    if (spec.frozen) continue;
    const FlatEntry& entry = *layout.find(spec.name);
    begin = std::min(begin, entry.offset);
    end = std::max(end, entry.offset + entry.count);
  }
  return {std::min(begin, end), end};
}

PartModel part_model(const ModelGraph& graph, const ExportedUnits& units, const std::string& part) {
  std::vector<bool> own;
  for (const Layer& layer : graph.layers) own.push_back(layer.part == part && !layer.is_repeated);
  return Cutter(graph, units, std::move(own)).cut();
}

PartModel model_of_heads(const ModelGraph& graph, const ExportedUnits& units,
                         std::span<const std::size_t> heads) {
  if (heads.size() == units.outputs.size()) return {graph, units};
  std::vector<std::size_t> values;
  for (const std::size_t head : heads)
    values.push_back(graph.outputs[graph.output_of_head(head, units.outputs.size())].value);
  PartModel model = Cutter(graph, units, layers_before(graph, values)).cut(heads);
  if (heads.size() == 1) model.units.outputs.front().name.clear();
  return model;
}

}  // namespace wflow::trainer
