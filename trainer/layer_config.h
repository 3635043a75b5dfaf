// SPDX-License-Identifier: Apache-2.0
// The kinds of layers, and one entry of a model's list of layers (`model: {layers: [...]}`) as written.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/yaml.h"

namespace wflow::config {
struct Row;
}

namespace wflow::trainer {

enum class LayerKind {
  convolution,             // parameters weight [out, in / groups, kd, kh, kw] and bias [out]
  transposed_convolution,  // weight [in, out, kd, kh, kw], bias [out]
  linear,                  // weight [out, in], bias [out]
  batch_norm,              // scale, shift [C]; buffers running mean, variance [C]
  group_norm,              // scale, shift [C]; statistics over groups of channels of a sample
  layer_norm,              // scale, shift [C]; statistics over the channels of each cell
  leaky_relu,              // value: the slope below 0
  relu,
  elu,
  gelu,
  silu,
  sigmoid,
  tanh,
  softplus,
  tanh_scale,    // value * tanh(x)
  dropout,       // value: the probability of 0
  average_pool,  // windows = kernel, no overlap; cells beyond the last whole window are dropped
  max_pool,
  upsample,       // each cell repeated
  resize,         // linear between cells, to any number of them
  pixel_shuffle,  // channels become cells
  slice,          // a range of channels or cells
  gather,         // channels by number
  embedding,      // class number -> vector; parameter weight [classes, size]
  instance_norm,  // in a graph: a group norm with a group a channel
  flatten,
  global_mean,
  global_max,
  softmax,  // over the channels
  reshape,
  add,
  concatenate,  // along the channels
  sample,       // from a normal distribution, given its mean and logarithm of variance
  lstm,  // parameters as in PyTorch, [4 units, ...]: weight_ih, weight_hh, bias_ih, bias_hh; then reverse
  gru,   // the same with 3 units
  attention,             // in_weight [3C, C], in_bias [3C], out_weight [C, C], out_bias [C]
  positions,             // adds a table [C, cells]; learned: parameter table
  coordinates,           // appends a channel for each axis, from 0 to 1
  spectral_convolution,  // weight [modes, in, 2, out]: real and imaginary parts
  conv_lstm,             // weight_x [4 out, in, kd, kh, kw], weight_h [4 out, out, kd, kh, kw], bias [4 out]
  stop,                  // the value as it is; no gradient goes through
  subtract,
  film,           // x (1 + scale) + shift for each channel; the second input has the scales, then the shifts
  mix,            // of two values, in a random proportion for each sample
  spread,         // numbers as channels of a field with the cells of the second input
  trace_density,  // minus the logarithm of the density of a trace's draws, given a vector (docs/traces.md)
  apply,          // in lists: the layers of a part once more, on other values, with the same weights
  count,          // number of kinds that a list of layers may have
  module,         // a whole network in a TorchScript file
  wrap            // in a graph: a field with its border from the other ends, before a periodic convolution
};

// The name of a kind in YAML files and messages: "dense" for linear.
const char* name_of(LayerKind kind);

// Initial values of a layer's weights. automatic: by the rule of the whole network.
enum class LayerInit { automatic, he, torch, zero };

// The values that windows read beyond the edge of a field. same: zeros; valid: none, windows stay inside;
// periodic: the cells at the other end.
enum class Padding { same, valid, periodic };

// The axes of a field, as in its shape [channels, depth, height, width].
enum class LayerAxis { channels, depth, height, width };

// The output of a recurrent layer: its state after the last step, or after each step.
enum class StepOutput { last, sequence };

struct LayerConfig {
  LayerKind kind = LayerKind::linear;
  std::string name;
  std::vector<std::string> from;  // names of layers or inputs; never empty
  std::int64_t size = 0;          // channels, units, cells of a window, factor or groups
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  std::int64_t classes = 0;              // embedding
  LayerAxis axis = LayerAxis::channels;  // slice
  Padding padding = Padding::same;
  bool bias = true;
  double value = 0;  // slope, probability or factor
  // reshape: channels, then cells along up to three axes; resize: cells; slice: first and end; gather:
  // channels
  std::vector<std::int64_t> shape;
  LayerInit init = LayerInit::automatic;
  std::string part;                      // "encoder", ...; empty: none
  bool bidirectional = false;            // lstm, gru
  StepOutput output = StepOutput::last;  // lstm, gru, conv_lstm
  std::int64_t modes = 12;               // spectral_convolution
  bool learned = false;                  // positions
  std::int64_t components = 8;           // trace_density: normal distributions of a proposal
  std::string applied;                   // apply: the part
  bool operator==(const LayerConfig&) const = default;
};

// `inputs`: names of the network's inputs, at least one; without `from`, the first layer reads the first of
// them. Every error goes to `diagnostics`.
std::vector<LayerConfig> read_layers(const yaml::Node& node, std::span<const std::string> inputs,
                                     yaml::Diagnostics& diagnostics);
yaml::Node to_yaml(const LayerConfig& layer);
// The JSON schema of a list of layers.
nlohmann::ordered_json layers_schema();
// The keys of a layer beside its kind, for docs/.
std::vector<config::Row> layer_rows();

// True if an embedding reads the input, which then keeps its class numbers.
bool reads_class_numbers(std::span<const LayerConfig> layers, const std::string& input);

// True if the input is not normalised: an embedding reads its class numbers, or a trace_density its trace.
bool keeps_values(std::span<const LayerConfig> layers, const std::string& input);

// True for lstm and gru.
bool is_recurrent(LayerKind kind);
// True if the kind is an activation.
bool is_activation(LayerKind kind);

}  // namespace wflow::trainer
