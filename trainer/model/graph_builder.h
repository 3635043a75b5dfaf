// SPDX-License-Identifier: Apache-2.0
// Adds layers to a graph one by one and computes their sizes, for the named networks and for the layers of a
// `model:` block. Each call returns the number of the new value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Throws Error{spec} for a network that does not fit the data.
[[noreturn]] void refuse(const std::string& sentence);

// sequence_families.cc: fno, lstm and conv_lstm.
bool is_sequence_family(ModelName name);
ModelGraph build_sequence_family(const ModelConfig& config, const ModelTask& task);

class GraphBuilder {
 public:
  using Value = std::size_t;

  struct Window {
    std::int64_t kernel = 3;
    std::int64_t stride = 1;
    // same and periodic: the output has ceil(n / stride) cells; valid: windows that fit.
    // Transposed, never periodic: n cells become n * stride, or (n - 1) * stride + kernel.
    Padding padding = Padding::same;
    bool bias = true;
    std::int64_t dilation = 1;  // distance between the cells of a window
    std::int64_t groups = 1;    // of channels that do not mix
  };

  // An axis with one cell in all `fields` is flat: windows and pools do not extend along it.
  GraphBuilder(std::vector<NamedShape> inputs, const std::vector<TensorShape>& fields);

  const TensorShape& shape(Value value) const { return graph_.shape_of(value); }
  const std::array<bool, 3>& flat() const { return flat_; }

  // The part that layers belong to from now on.
  void begin_part(std::string part) { part_ = std::move(part); }

  // A periodic one is a wrap, named NAME.wrap, and a convolution without padding.
  Value convolution(std::string name, Value from, std::int64_t channels, const Window& window);
  Value transposed_convolution(std::string name, Value from, std::int64_t channels, const Window& window);
  // Norm::none returns `from`.
  Value norm(std::string name, Value from, Norm norm, std::int64_t groups = 0);
  // A group norm with a group a channel.
  Value instance_norm(std::string name, Value from);
  Value layer_norm(std::string name, Value from);
  Value linear(std::string name, Value from, std::int64_t size);
  // Element by element; `value` is the slope, the probability or the factor.
  Value pointwise(LayerKind kind, std::string name, Value from, double value = 0);
  Value pool(LayerKind kind, std::string name, Value from, const std::array<std::int64_t, 3>& kernel);
  Value upsample(std::string name, Value from, std::int64_t factor);
  // Linear between the cells' centres; the field keeps its size.
  Value resize(std::string name, Value from, const std::array<std::int64_t, 3>& extent);
  // Channels (c, i, j, k) become cells: `factor` times as many along every axis that is not flat.
  Value pixel_shuffle(std::string name, Value from, std::int64_t factor);
  // Channels or cells from `first` to before `end`.
  Value slice(std::string name, Value from, LayerAxis axis, std::int64_t first, std::int64_t end);
  Value gather(std::string name, Value from, std::vector<std::int64_t> channels);
  // `from`: an input of one channel with class numbers.
  Value embedding(std::string name, Value from, std::int64_t classes, std::int64_t size);
  // The dictionary of the data set's traces, for trace_density().
  void use_addresses(std::shared_ptr<const traces::AddressTable> addresses) {
    addresses_ = std::move(addresses);
  }
  // Minus the logarithm of the density that the network gives the draws of a trace, an input [8, steps] with
  // a traces::Row a step. Parameters: those of traces::ProposalNetwork::shapes().
  Value trace_density(std::string name, Value from, Value trace, std::int64_t units, std::int64_t components);
  Value flatten(std::string name, Value from);
  Value global_pool(LayerKind kind, std::string name, Value from);
  Value softmax(std::string name, Value from);
  Value reshape(std::string name, Value from, const TensorShape& shape);
  Value add(std::string name, const std::vector<Value>& from);
  Value concatenate(std::string name, const std::vector<Value>& from);
  // The value as it is, through which no gradient goes.
  Value stop(std::string name, Value from);
  Value subtract(std::string name, Value from, Value other);
  // u times the one and 1 - u times the other, with u from 0 to 1 for each sample; in predictions the mean.
  Value mix(std::string name, Value from, Value other);
  // Perez et al. 2018 (arXiv 1709.07871): `numbers` has two for each channel of the field.
  Value film(std::string name, Value field, Value numbers);
  // `numbers` as channels on the cells of `field`.
  Value spread(std::string name, Value numbers, Value field);
  // The initial weights of the last layer.
  void choose_init(LayerInit init) { graph_.layers.back().init = init; }
  // Gives the last layer the parameters and the buffers of another, and its settings of parts.
  void share_weights(Value original);
  // mean + exp(log_variance / 2) * noise in training, the mean in predictions.
  Value sample(std::string name, Value mean, Value log_variance);

  // sequence_graph.cc. `from`: a series, and perhaps an input with its mask (0: padding after the last step).
  struct Steps {
    bool bidirectional = false;
    StepOutput output = StepOutput::last;
  };
  Value recurrent(LayerKind kind, std::string name, const std::vector<Value>& from, std::int64_t units,
                  const Steps& steps);
  // Between the cells of a field; a mask excludes cells.
  Value attention(std::string name, const std::vector<Value>& from, std::int64_t heads);
  Value positions(std::string name, Value from, bool learned);
  Value coordinates(std::string name, Value from);
  // `modes`: of each axis; those of flat axes are 1.
  Value spectral_convolution(std::string name, Value from, std::int64_t channels,
                             const std::array<std::int64_t, 3>& modes);
  // Frames along the first axis that is not flat.
  Value conv_lstm(std::string name, Value from, std::int64_t channels, std::int64_t kernel,
                  StepOutput output);

  void output(std::string name, Value value) { graph_.outputs.push_back({std::move(name), value}); }
  ModelGraph finish() { return std::move(graph_); }

  // A kernel with `size` along every axis that is not flat.
  std::array<std::int64_t, 3> along_axes(std::int64_t size) const;
  // A value's name in messages: that of its layer or input.
  const std::string& name_of(Value value) const;

 private:
  Layer begin(LayerKind kind, std::string name, std::vector<Value> from) const;
  Value push(Layer layer);
  Value wrap(const std::string& convolution, Value from, const Window& window);
  void need_vector(const Layer& layer) const;
  void need_divisible_channels(const Layer& layer) const;
  void need_equal_extents(const Layer& layer, bool channels_too) const;
  void need_field(const Layer& layer) const;
  void need_mask(const Layer& layer) const;

  std::shared_ptr<const traces::AddressTable> addresses_;
  ModelGraph graph_;
  std::array<bool, 3> flat_ = {true, true, true};
  std::string part_;
};

// The distribution of each layer's initial weights, by its kind, its position and the layers that follow.
//
//   he      weights of variance 2 / fan_in, biases 0 (He et al. 2015)
//   torch   weights and biases within 1 / sqrt(fan_in) of 0, as PyTorch's own layers
//   auto    convolutions before a rectifier: he's weights and torch's biases; all other layers: torch
//   data    he, and scaled by the data afterwards (trainer/training/data_initial.cc)
//
// Dense layers learn best from small weights: with He's, errors on small regressions are up to three times as
// large. A deep trunk of convolutions loses its signal with small weights. bench/README.md has the figures.
//
// Sets `initial` and `fan_in` of the weights and biases of convolutions and dense layers. A layer's own
// `init` has priority over the network's rule.
void choose_initial_weights(ModelGraph& graph, InitialWeights rule);

}  // namespace wflow::trainer
