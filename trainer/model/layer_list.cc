// SPDX-License-Identifier: Apache-2.0
// model: {layers: [...]} -> a graph.
#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "trainer/model/graph_builder.h"
#include "trainer/model/model_families.h"

namespace wflow::trainer {
namespace {

using Value = GraphBuilder::Value;

TensorShape shape_of(const std::vector<std::int64_t>& list) {
  TensorShape shape;
  shape.channels = list.front();
  // Axes that are not written are flat ones in front.
  for (std::size_t i = 1; i < list.size(); ++i) shape.extent[3 - list.size() + i] = list[i];
  return shape;
}

Value add_layer(GraphBuilder& graph, const LayerConfig& layer, const std::vector<Value>& from) {
  GraphBuilder::Window window = {layer.kernel, layer.stride, layer.same, layer.bias};
  switch (layer.kind) {
    case LayerKind::convolution:
      return graph.convolution(layer.name, from[0], layer.size, window);
    case LayerKind::transposed_convolution:
      return graph.transposed_convolution(layer.name, from[0], layer.size, window);
    case LayerKind::linear:
      return graph.linear(layer.name, from[0], layer.size);
    case LayerKind::batch_norm:
      return graph.norm(layer.name, from[0], Norm::batch);
    case LayerKind::group_norm:
      return graph.norm(layer.name, from[0], Norm::group, layer.size);
    case LayerKind::layer_norm:
      return graph.layer_norm(layer.name, from[0]);
    case LayerKind::average_pool:
    case LayerKind::max_pool:
      return graph.pool(layer.kind, layer.name, from[0], graph.along_axes(layer.size));
    case LayerKind::upsample:
      return graph.upsample(layer.name, from[0], layer.size);
    case LayerKind::flatten:
      return graph.flatten(layer.name, from[0]);
    case LayerKind::global_mean:
    case LayerKind::global_max:
      return graph.global_pool(layer.kind, layer.name, from[0]);
    case LayerKind::softmax:
      return graph.softmax(layer.name, from[0]);
    case LayerKind::reshape:
      return graph.reshape(layer.name, from[0], shape_of(layer.shape));
    case LayerKind::add:
      return graph.add(layer.name, from);
    case LayerKind::concatenate:
      return graph.concatenate(layer.name, from);
    case LayerKind::sample:
      return graph.sample(layer.name, from[0], from[1]);
    default:
      return graph.pointwise(layer.kind, layer.name, from[0], layer.value);
  }
}

void check_all_lead_to_an_output(const ModelGraph& graph) {
  std::vector<bool> read(graph.inputs.size() + graph.layers.size(), false);
  for (const ModelGraph::Output& output : graph.outputs) read[output.value] = true;
  for (std::size_t i = graph.layers.size(); i-- > 0;) {
    if (!read[graph.inputs.size() + i]) {
      refuse(fmt::format(
          "nothing reads the layer '{}': remove it, or name it in 'from' of another layer or in 'outputs'",
          graph.layers[i].name));
    }
    for (const std::size_t value : graph.layers[i].inputs) read[value] = true;
  }
}

}  // namespace

ModelGraph build_layers(const ModelConfig& config, const ModelTask& task) {
  GraphBuilder graph(task.inputs, {task.output});
  std::map<std::string, Value> values;
  for (Value input = 0; input < task.inputs.size(); ++input) values[task.inputs[input].name] = input;
  for (const LayerConfig& layer : config.layers) {
    std::vector<Value> from;
    for (const std::string& name : layer.from) from.push_back(values.at(name));
    values[layer.name] = add_layer(graph, layer, from);
  }
  std::vector<std::string> outputs = config.outputs;
  if (outputs.empty()) outputs.push_back(config.layers.back().name);
  for (const std::string& name : outputs) graph.output(name, values.at(name));
  const TensorShape& given = graph.shape(values.at(outputs.front()));
  if (given != task.output) {
    refuse(fmt::format("the network's output '{}' is {}, and targets and loss want {}", outputs.front(),
                       text_of(given), text_of(task.output)));
  }
  ModelGraph finished = graph.finish();
  WFLOW_CHECK(finished.layers.size() == config.layers.size());
  for (std::size_t i = 0; i < finished.layers.size(); ++i) finished.layers[i].init = config.layers[i].init;
  check_all_lead_to_an_output(finished);
  return finished;
}

}  // namespace wflow::trainer
