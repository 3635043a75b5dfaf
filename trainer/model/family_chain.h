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

inline std::vector<NamedShape> heads_of(const ModelTask& task) {
  std::vector<NamedShape> heads = {{task.name, task.output}};
  heads.insert(heads.end(), task.further.begin(), task.further.end());
  return heads;
}

inline std::vector<TensorShape> shapes_of(const std::vector<NamedShape>& named) {
  std::vector<TensorShape> shapes;
  for (const NamedShape& one : named) shapes.push_back(one.shape);
  return shapes;
}

// The builder with the common parts of the families: numbered layers and a current value.
class Chain {
 public:
  using Value = GraphBuilder::Value;

  Chain(const ModelConfig& config, const ModelTask& task)
      : config_(config), task_(task), graph_(task.inputs, shapes_of(heads_of(task))), at_(0) {
    graph_.begin_part("encoder");
  }

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
    window.padding = config_.padding;
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
  void flatten() { at_ = graph_.flatten(of_grid("flatten"), at_); }
  void global_mean() { at_ = graph_.global_pool(LayerKind::global_mean, of_grid("global_mean"), at_); }
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
    join_channels(parts);
  }
  void join_channels(const std::vector<Value>& parts) {
    at_ = parts.size() == 1 ? parts.front() : graph_.concatenate(of_grid("inputs"), parts);
  }

  // Inputs of any grids as one vector: `trunk` makes one of the fields of each grid, and numbers follow.
  template <typename Trunk>
  void read_grids(Trunk trunk) {
    std::vector<std::vector<Value>> grids;
    std::vector<Value> parts;
    std::vector<Value> numbers;
    for (Value input = 0; input < task_.inputs.size(); ++input) {
      if (graph_.shape(input).voxels() == 1) {
        numbers.push_back(input);
        continue;
      }
      const auto on_its_grid = [&](const std::vector<Value>& grid) {
        return graph_.shape(grid.front()).extent == graph_.shape(input).extent;
      };
      const auto grid = std::find_if(grids.begin(), grids.end(), on_its_grid);
      if (grid == grids.end()) {
        grids.push_back({input});
      } else {
        grid->push_back(input);
      }
    }
    if (grids.empty()) need_poolable();
    for (const std::vector<Value>& grid : grids) {
      ++grid_;
      join_channels(grid);
      need_poolable();
      trunk();
      parts.push_back(at_);
    }
    parts.insert(parts.end(), numbers.begin(), numbers.end());
    if (parts.size() > 1) at_ = graph_.concatenate("all_inputs", parts);
  }

  void need_poolable() const {
    if (can_pool()) return;
    refuse(fmt::format(
        "the network '{}' needs an input of at least {} cells along one axis; the samples are {}{}",
        name_of(config_.name), kSmallestPooled, text_of(shape()),
        task_.output.voxels() == 1 ? "; 'mlp' takes inputs of any size" : ""));
  }

  // Throws Error{spec} unless the fields among the targets have the cells of the current value, and one is a
  // field.
  void need_target_grid() const {
    for (const NamedShape& head : heads_of(task_)) {
      if (head.shape.extent == shape().extent || (head.shape.voxels() == 1 && !task_.further.empty()))
        continue;
      refuse(fmt::format(
          "the network '{}' gives a field of as many cells as it reads ({}), and the target{} has {}",
          name_of(config_.name), text_of(shape()),
          head.name.empty() ? "" : fmt::format(" of the head '{}'", head.name), text_of(head.shape)));
    }
  }

  // An output for each head of a network that gives fields: fields by a convolution of the current value,
  // numbers, which are of the whole field, from the means of `coarsest`.
  ModelGraph field_heads(Value coarsest) {
    GraphBuilder::Window point;
    point.kernel = 1;
    const Value finest = at_;
    for (const NamedShape& head : heads_of(task_)) {
      graph_.begin_part(head.name.empty() ? "head" : head.name);
      if (head.shape.voxels() == 1) {
        at_ = graph_.global_pool(LayerKind::global_mean, layer_of(head.name, "mean"), coarsest);
        numbers(head.name, head.shape.channels);
        continue;
      }
      at_ = graph_.convolution(layer_of(head.name, "out"), finest, head.shape.channels, point);
      output(head.name);
    }
    return graph_.finish();
  }
  // The dense layers, and an output of numbers for each head.
  ModelGraph head(std::int64_t outputs) {
    graph_.begin_part("head");
    dense_layers();
    const Value trunk = at_;
    numbers(task_.name, outputs);
    for (const NamedShape& head : task_.further) {
      at_ = trunk;
      numbers(head.name, head.shape.channels);
    }
    return graph_.finish();
  }
  void dense_layers() {
    for (const std::int64_t size : config_.dense) dense_block(size);
  }
  // A head's output from the current value. The only head has no name: its layer is "out".
  void numbers(const std::string& head, std::int64_t outputs) {
    graph_.begin_part(head.empty() ? "head" : head);
    at_ = graph_.linear(layer_of(head, "out"), at_, outputs);
    if (config_.tanh_output)
      at_ = graph_.pointwise(LayerKind::tanh_scale, layer_of(head, "tanh"), at_, kTanhScale);
    output(head);
  }
  void output(const std::string& head) { graph_.output(head.empty() ? "out" : head, at_); }
  static std::string layer_of(const std::string& head, const std::string& layer) {
    return head.empty() ? layer : head + "." + layer;
  }

 private:
  // The name of a layer that stands once for each grid.
  std::string of_grid(const char* layer) const {
    return grid_ > 1 ? fmt::format("{}{}", layer, grid_) : std::string(layer);
  }

  const ModelConfig& config_;
  const ModelTask& task_;
  GraphBuilder graph_;
  Value at_;
  int convolutions_ = 0;
  int linears_ = 0;
  int grid_ = 0;  // of read_grids()
};

// Networks with shortcuts around their convolutions, for fields of one to three dimensions.

// Field to numbers: He et al. 2016 (arXiv 1512.03385), blocks of two convolutions; with `pre_activation`
// those of arXiv 1603.05027. The first convolution keeps the grid, as in the paper's networks for 32 x 32
// cells.
ModelGraph build_resnet(const ModelConfig& config, Chain chain, const ModelTask& task);

// Field to field: the encoder of resnet, its last level with dilation in place of another halving, parallel
// convolutions of several dilations, and a decoder on the whole grid that also reads the first level (Chen et
// al. 2018, arXiv 1802.02611; Kurth et al. 2018, arXiv 1810.01993, for the decoder).
ModelGraph build_deeplab(const ModelConfig& config, Chain chain, const ModelTask& task);

// Field to field: Jegou et al. 2017 (arXiv 1611.09326), dense blocks on the way down and up.
ModelGraph build_tiramisu(const ModelConfig& config, Chain chain, const ModelTask& task);

}  // namespace wflow::trainer
