// SPDX-License-Identifier: Apache-2.0
// A network as a chain of layers with sizes, parameters and flops: what a back end executes. No library, no
// device; the same graph gives the same training in every back end.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace wflow::trainer {

// Of one sample. Vectors have extent {1, 1, 1}.
struct TensorShape {
  std::int64_t channels = 1;
  std::array<std::int64_t, 3> extent = {1, 1, 1};  // depth, height, width
  std::int64_t voxels() const { return extent[0] * extent[1] * extent[2]; }
  std::int64_t count() const { return channels * voxels(); }
  bool operator==(const TensorShape&) const = default;
};

enum class LayerKind {
  convolution,  // stride 1; parameters weight [out, in, kd, kh, kw] and, without a norm behind it, bias [out]
  batch_norm,   // parameters scale, shift [C]; buffers running mean, variance [C]
  leaky_relu,   // value: the slope below 0
  average_pool,  // windows = kernel, no overlap; what is left at the edge is dropped
  max_pool,
  flatten,
  global_mean,
  linear,      // parameters weight [out, in], bias [out]
  dropout,     // value: the probability of 0
  tanh_scale,  // value * tanh(x)
};

enum class Initial { zero, one, he_normal };

struct ParameterSpec {
  std::string name;  // "conv1.weight"
  std::vector<std::int64_t> shape;
  Initial initial = Initial::zero;
  std::int64_t fan_in = 1;
  bool decays =
      false;  // takes part in weight decay and layer-wise rates: weights do, biases and norms do not
  std::int64_t count() const;
};

struct Layer {
  LayerKind kind = LayerKind::flatten;
  std::string name;
  TensorShape input;
  TensorShape output;
  std::array<std::int64_t, 3> kernel = {1, 1, 1};
  std::array<std::int64_t, 3> pad_low = {0, 0, 0};
  std::array<std::int64_t, 3> pad_high = {0, 0, 0};
  double value = 0;
  std::vector<ParameterSpec> parameters;
  std::vector<ParameterSpec> buffers;

  bool in_place() const;               // a back end needs no second array for the output
  std::int64_t forward_flops() const;  // a sample, multiply and add counted as two
};

inline constexpr double kNormEpsilon = 1e-5;
inline constexpr double kNormMomentum = 0.1;  // of the newest batch in the running statistics

struct ModelGraph {
  TensorShape input;
  std::int64_t outputs = 1;
  std::vector<Layer> layers;

  std::vector<ParameterSpec> parameters() const;  // in order of the layers
  std::vector<ParameterSpec> buffers() const;
  std::int64_t parameter_count() const;
  std::int64_t forward_flops() const;
  // Forward, weight gradients, and data gradients of all but the first layer.
  std::int64_t training_flops() const;
  // What a training step keeps a sample: every layer's output that is not in place, forward and backward.
  std::int64_t activation_bytes() const;
  std::string describe() const;  // a table for people
};

// Throws Error{spec} if the input is too small for the network.
ModelGraph build_model(const ModelConfig& config, const TensorShape& input, std::int64_t outputs);

// The values a fresh parameter or buffer starts from: a function of (seed, name, index).
void fill_initial(const ParameterSpec& spec, std::uint64_t seed, std::span<float> values);

}  // namespace wflow::trainer
