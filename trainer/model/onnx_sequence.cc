// SPDX-License-Identifier: Apache-2.0
// Recurrent, attention and spectral layers in ONNX.
#include <cmath>

#include "trainer/model/layer_constants.h"
#include "trainer/model/onnx_graph.h"

namespace wflow::trainer {
namespace {

using OnnxSizes = std::vector<std::int64_t>;

OnnxSizes field_sizes(const TensorShape& shape) {
  return {0, shape.channels, shape.extent[0], shape.extent[1], shape.extent[2]};
}

// Rows of gates in another order. ONNX has input, output, forget, cell (lstm) and update, reset, new (gru).
std::string gates_in_order(const std::string& value, bool lstm, std::int64_t units, OnnxGraph& onnx) {
  const OnnxNames parts = onnx.split(value, OnnxSizes(lstm ? 4 : 3, units), 0);
  const OnnxNames ordered =
      lstm ? OnnxNames{parts[0], parts[3], parts[1], parts[2]} : OnnxNames{parts[1], parts[0], parts[2]};
  return onnx.concat(ordered, 0);
}

// The steps of each sample before its padding, at least one.
std::string lengths_node(const Layer& layer, const std::string& mask, OnnxGraph& onnx) {
  const std::string rows = onnx.reshape(mask, {0, layer.input.extent[2]});
  const std::string valid = onnx.node("Greater", {rows, onnx.real(0.5)});
  const std::string counted = onnx.node("ReduceSum", {onnx.cast_to(valid, kInt64), onnx.integers({1})},
                                        Attributes().integer("keepdims", 0));
  return onnx.cast_to(onnx.node("Max", {counted, onnx.integers({1})}), kInt32);
}

std::string recurrent_nodes(const Layer& layer, const OnnxNames& inputs, OnnxGraph& onnx) {
  const bool lstm = layer.kind == LayerKind::lstm;
  const std::int64_t units = layer.parameters[1].shape[1];
  const std::int64_t directions = layer.bidirectional ? 2 : 1;
  OnnxNames of_input;
  OnnxNames of_state;
  OnnxNames biases;
  for (std::size_t i = 0; i < layer.parameters.size(); i += 4) {
    const auto ordered = [&](std::size_t k) {
      return gates_in_order(layer.parameters[i + k].name, lstm, units, onnx);
    };
    const auto alone = [&](const std::string& value) {
      return onnx.node("Unsqueeze", {value, onnx.integers({0})});
    };
    of_input.push_back(alone(ordered(0)));
    of_state.push_back(alone(ordered(1)));
    biases.push_back(alone(onnx.concat({ordered(2), ordered(3)}, 0)));
  }
  const std::string rows = onnx.reshape(inputs[0], {0, layer.input.channels, layer.input.extent[2]});
  OnnxNames given = {onnx.transpose(rows, {2, 0, 1}), onnx.concat(of_input, 0), onnx.concat(of_state, 0),
                     onnx.concat(biases, 0)};
  if (inputs.size() > 1) given.push_back(lengths_node(layer, inputs[1], onnx));
  Attributes options;
  options.integer("hidden_size", units).text("direction", layer.bidirectional ? "bidirectional" : "forward");
  if (!lstm) options.integer("linear_before_reset", 1);
  const OnnxNames found = onnx.outputs(2);
  onnx.node_with_outputs(lstm ? "LSTM" : "GRU", given, found, options);
  if (!layer.every_step)  // [directions, samples, units]
    return onnx.reshape(onnx.transpose(found[1], {1, 0, 2}), {0, directions * units});
  // [steps, directions, samples, units]
  return onnx.reshape(onnx.transpose(found[0], {2, 1, 3, 0}), field_sizes(layer.output));
}

// x weight^T + bias along the last axis.
std::string dense_nodes(const std::string& x, const ParameterSpec& weight, const ParameterSpec& bias,
                        OnnxGraph& onnx) {
  return onnx.node("Add", {onnx.node("MatMul", {x, onnx.transpose(weight.name, {1, 0})}), bias.name});
}

std::string attention_nodes(const Layer& layer, const OnnxNames& inputs, OnnxGraph& onnx) {
  const std::int64_t channels = layer.input.channels;
  const std::int64_t cells = layer.input.voxels();
  const std::int64_t width = channels / layer.groups;
  const std::string rows = onnx.transpose(onnx.reshape(inputs[0], {0, channels, cells}), {0, 2, 1});
  const std::string all = dense_nodes(rows, layer.parameters[0], layer.parameters[1], onnx);
  OnnxNames parts = onnx.split(all, {channels, channels, channels}, 2);
  for (std::size_t i = 0; i < 3; ++i) {
    const OnnxSizes order = i == 1 ? OnnxSizes{0, 2, 3, 1} : OnnxSizes{0, 2, 1, 3};
    parts[i] = onnx.transpose(onnx.reshape(parts[i], {0, cells, layer.groups, width}), order);
  }
  std::string scores = onnx.node(
      "Div", {onnx.node("MatMul", {parts[0], parts[1]}), onnx.real(std::sqrt(static_cast<double>(width)))});
  if (inputs.size() > 1) {
    const std::string mask = onnx.reshape(inputs[1], {0, 1, 1, cells});
    const std::string valid = onnx.cast_to(onnx.node("Greater", {mask, onnx.real(0.5)}), kFloat);
    scores = onnx.node(
        "Add",
        {scores, onnx.node("Mul", {onnx.node("Sub", {valid, onnx.real(1)}), onnx.real(kExcludedScore)})});
  }
  const std::string shares = onnx.node("Softmax", {scores}, Attributes().integer("axis", -1));
  const std::string mixed = onnx.transpose(onnx.node("MatMul", {shares, parts[2]}), {0, 2, 1, 3});
  const std::string output =
      dense_nodes(onnx.reshape(mixed, {0, cells, channels}), layer.parameters[2], layer.parameters[3], onnx);
  return onnx.reshape(onnx.transpose(output, {0, 2, 1}), field_sizes(layer.output));
}

std::string constant_node(const LayerConstant& constant, OnnxGraph& onnx) {
  return onnx.reals(constant.name, constant.shape, constant.values);
}

std::string coordinate_nodes(const Layer& layer, const std::string& x, OnnxGraph& onnx) {
  // The sum with zeros of the input's batch repeats the table for each sample.
  const std::int64_t channels[] = {1};
  const std::string mean =
      onnx.node("ReduceMean", {x}, Attributes().integers("axes", channels).integer("keepdims", 1));
  const std::string zeros = onnx.node("Mul", {mean, onnx.real(0)});
  return onnx.concat({x, onnx.node("Add", {zeros, constant_node(coordinate_table(layer), onnx)})}, 1);
}

std::string step_nodes(const SpectralStep& step, const std::string& x, OnnxGraph& onnx) {
  OnnxSizes shape = {-1};
  shape.insert(shape.end(), step.shape.begin(), step.shape.end());
  const std::string moved = onnx.transpose(onnx.reshape(x, shape), step.order);
  const std::string rows = onnx.reshape(moved, {-1, step.merged[0], step.merged[1]});
  return onnx.node("MatMul", {rows, constant_node(step.matrix, onnx)});
}

std::string spectral_nodes(const Layer& layer, const std::string& x, OnnxGraph& onnx) {
  const SpectralPlan plan = spectral_plan(layer);
  const std::int64_t modes = layer.parameters[0].shape[0];
  std::string y = x;
  for (const SpectralStep& step : plan.forward) y = step_nodes(step, y, onnx);
  // [modes, samples, in] of each part, times [modes, in, out] of each part.
  const std::string spectrum = onnx.reshape(y, {-1, layer.input.channels, modes, 2});
  const OnnxNames parts = onnx.split(onnx.transpose(spectrum, {3, 2, 0, 1}), {1, 1}, 0);
  const OnnxNames weights = onnx.split(onnx.transpose(layer.parameters[0].name, {2, 0, 1, 3}), {1, 1}, 0);
  const auto times = [&](std::size_t part, std::size_t weight) {
    return onnx.node("MatMul", {parts[part], weights[weight]});
  };
  const std::string real = onnx.node("Sub", {times(0, 0), times(1, 1)});
  const std::string imaginary = onnx.node("Add", {times(0, 1), times(1, 0)});
  y = onnx.transpose(onnx.concat({real, imaginary}, 0), {2, 3, 1, 0});
  for (const SpectralStep& step : plan.inverse) y = step_nodes(step, y, onnx);
  const auto& e = layer.output.extent;
  return onnx.reshape(y, {-1, layer.output.channels, e[0], e[1], e[2]});
}

std::string frame_convolution(const Layer& layer, const OnnxNames& inputs, OnnxGraph& onnx) {
  const auto& low = layer.pad_low;
  const std::int64_t pads[] = {low[0], low[1], low[2], low[0], low[1], low[2]};
  const std::int64_t strides[] = {1, 1, 1};
  return onnx.node("Conv", inputs,
                   Attributes()
                       .integers("kernel_shape", layer.kernel)
                       .integers("strides", strides)
                       .integers("pads", pads));
}

// Written out step by step.
std::string conv_lstm_nodes(const Layer& layer, const std::string& x, OnnxGraph& onnx) {
  const std::int64_t channels = layer.output.channels;
  const auto axis = 2 + static_cast<std::int64_t>(layer.time_axis);
  const auto steps = static_cast<std::size_t>(layer.input.extent[layer.time_axis]);
  const std::string all =
      frame_convolution(layer, {x, layer.parameters[0].name, layer.parameters[2].name}, onnx);
  const OnnxNames frames = onnx.split(all, OnnxSizes(steps, 1), axis);
  std::string cell;
  OnnxNames states;
  for (std::size_t t = 0; t < steps; ++t) {
    std::string gates = frames[t];
    if (t > 0) {
      gates = onnx.node("Add",
                        {gates, frame_convolution(layer, {states.back(), layer.parameters[1].name}, onnx)});
    }
    const OnnxNames gate = onnx.split(gates, OnnxSizes(4, channels), 1);
    const std::string news =
        onnx.node("Mul", {onnx.node("Sigmoid", {gate[0]}), onnx.node("Tanh", {gate[2]})});
    cell =
        t == 0 ? news : onnx.node("Add", {onnx.node("Mul", {onnx.node("Sigmoid", {gate[1]}), cell}), news});
    states.push_back(onnx.node("Mul", {onnx.node("Sigmoid", {gate[3]}), onnx.node("Tanh", {cell})}));
  }
  return layer.every_step ? onnx.concat(states, axis) : states.back();
}

}  // namespace

std::string sequence_nodes(const Layer& layer, const OnnxNames& inputs, OnnxGraph& onnx) {
  switch (layer.kind) {
    case LayerKind::lstm:
    case LayerKind::gru:
      return recurrent_nodes(layer, inputs, onnx);
    case LayerKind::attention:
      return attention_nodes(layer, inputs, onnx);
    case LayerKind::positions:
      return onnx.node("Add",
                       {inputs[0], layer.parameters.empty() ? constant_node(position_table(layer), onnx)
                                                            : layer.parameters[0].name});
    case LayerKind::coordinates:
      return coordinate_nodes(layer, inputs[0], onnx);
    case LayerKind::spectral_convolution:
      return spectral_nodes(layer, inputs[0], onnx);
    case LayerKind::conv_lstm:
      return conv_lstm_nodes(layer, inputs[0], onnx);
    default:
      return {};
  }
}

}  // namespace wflow::trainer
