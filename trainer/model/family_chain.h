// SPDX-License-Identifier: Apache-2.0
// The parts that the named networks share. To be included only by the sources that build them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/model/graph_builder.h"

namespace wflow::trainer {

inline constexpr std::int64_t kSmallestPooled =
    8;                                     // axes with at least so many cells are halved: down to 4 to 7
inline constexpr double kTanhScale = 1.2;  // MLPerf: targets lie in [-1, 1], outputs may overshoot a little

// The builder with the common parts of the families: numbered layers and a current value.
class Chain {
 public:
  using Value = GraphBuilder::Value;

  Chain(const ModelConfig& config, const ModelTask& task)
      : config_(config), graph_(task.inputs, {task.output}), at_(0) {}

  GraphBuilder& graph() { return graph_; }
  Value at() const { return at_; }
  void set(Value value) { at_ = value; }
  const TensorShape& shape() const { return graph_.shape(at_); }
  std::string convolution_name() const { return fmt::format("conv{}", convolutions_); }

  void convolution(std::int64_t channels, std::int64_t size, std::int64_t stride = 1,
                   std::int64_t dilation = 1) {
    GraphBuilder::Window window;
    window.kernel = size;
    window.stride = stride;
    window.dilation = dilation;
    // A norm subtracts the mean: a bias before it has no effect.
    window.bias = config_.norm == Norm::none;
    at_ = graph_.convolution(fmt::format("conv{}", ++convolutions_), at_, channels, window);
  }
  void norm() { norm(fmt::format("norm{}", convolutions_)); }
  void norm(std::string name) { at_ = graph_.norm(std::move(name), at_, config_.norm); }
  void activation(const std::string& after) {
    const bool leaky = config_.activation == LayerKind::leaky_relu;
    const std::string name = leaky ? after + ".leaky" : after + "." + name_of(config_.activation);
    at_ = graph_.pointwise(config_.activation, name, at_, leaky ? config_.leaky_slope : 0);
  }
  void convolution_block(std::int64_t channels, std::int64_t size = 3, std::int64_t stride = 1,
                         std::int64_t dilation = 1) {
    convolution(channels, size, stride, dilation);
    norm();
    activation(convolution_name());
  }
  bool can_pool() const {
    const auto& e = shape().extent;
    return std::any_of(e.begin(), e.end(), [](auto n) { return n >= kSmallestPooled; });
  }
  void pool(LayerKind kind) {
    std::array<std::int64_t, 3> kernel{};
    for (std::size_t axis = 0; axis < 3; ++axis)
      kernel[axis] = shape().extent[axis] >= kSmallestPooled ? 2 : 1;
    at_ = graph_.pool(kind, fmt::format("pool{}", convolutions_), at_, kernel);
  }
  void flatten() { at_ = graph_.flatten("flatten", at_); }
  void global_mean() { at_ = graph_.global_pool(LayerKind::global_mean, "global_mean", at_); }
  void linear(std::int64_t size) { at_ = graph_.linear(fmt::format("dense{}", ++linears_), at_, size); }
  void dense_block(std::int64_t size) {
    linear(size);
    activation(fmt::format("dense{}", linears_));
    if (config_.dropout > 0) {
      at_ = graph_.pointwise(LayerKind::dropout, fmt::format("dropout{}", linears_), at_, config_.dropout);
    }
  }
  // The inputs as one vector: fields are flattened.
  void join_inputs(std::size_t count) {
    std::vector<Value> parts;
    for (Value input = 0; input < count; ++input) {
      const bool field = graph_.shape(input).voxels() > 1;
      parts.push_back(field ? graph_.flatten(fmt::format("flatten{}", input + 1), input) : input);
    }
    at_ = parts.size() == 1 ? parts.front() : graph_.concatenate("inputs", parts);
  }

  // Fields on one grid as the channels of one field.
  void join_channels(std::size_t count) {
    std::vector<Value> parts;
    for (Value input = 0; input < count; ++input) parts.push_back(input);
    if (count > 1) at_ = graph_.concatenate("inputs", parts);
  }

  // Throws Error{spec} unless the target has the cells of the current value.
  void need_target_grid(const ModelTask& task) const {
    if (task.output.extent == shape().extent) return;
    refuse(
        fmt::format("the network '{}' gives a field of as many cells as it reads ({}), and the target has {}",
                    name_of(config_.name), text_of(shape()), text_of(task.output)));
  }

  // The last convolution of a network that gives a field.
  ModelGraph field_head(std::int64_t channels) {
    GraphBuilder::Window point;
    point.kernel = 1;
    at_ = graph_.convolution("out", at_, channels, point);
    return finish();
  }
  ModelGraph head(std::int64_t outputs) {
    for (const std::int64_t size : config_.dense) dense_block(size);
    at_ = graph_.linear("out", at_, outputs);
    if (config_.tanh_output) at_ = graph_.pointwise(LayerKind::tanh_scale, "tanh", at_, kTanhScale);
    return finish();
  }
  ModelGraph finish() {
    graph_.output("out", at_);
    return graph_.finish();
  }

 private:
  const ModelConfig& config_;
  GraphBuilder graph_;
  Value at_;
  int convolutions_ = 0;
  int linears_ = 0;
};

}  // namespace wflow::trainer
