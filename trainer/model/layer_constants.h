// SPDX-License-Identifier: Apache-2.0
// Arrays that a layer's kind and shape define: the tables of positions and coordinates, the matrices of a
// spectral convolution. Training, TorchScript and ONNX use the same ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// attention: what a score loses for a cell that the mask excludes; its weight is then 0.
inline constexpr double kExcludedScore = 1e9;

struct LayerConstant {
  std::string name;  // "spectral1.forward0"
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// positions: [1, channels, D, H, W]; coordinates: [1, axes, D, H, W].
LayerConstant position_table(const Layer& layer);
LayerConstant coordinate_table(const Layer& layer);

// A Fourier transform along one axis as a product of matrices. The value is reshaped to `shape`, its axes
// permuted to `order`, reshaped to `merged` (rows x matrix rows) and multiplied. `order` counts the
// axis of the samples; the sizes leave it out.
struct SpectralStep {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> merged;
  LayerConstant matrix;
  std::int64_t rows() const;
};

// forward: [in, D, H, W] -> [in, modes, 2]; inverse: [out, modes, 2] -> [out, D, H, W]. The last axis is the
// real and the imaginary part. Between them the layer multiplies by its weight. The innermost axis keeps the
// modes 0 to m - 1 of `layer.kernel`; each other axis 0 to m - 1, then -m to -1.
struct SpectralPlan {
  std::vector<SpectralStep> forward;
  std::vector<SpectralStep> inverse;
};
SpectralPlan spectral_plan(const Layer& layer);

// All constants of a layer; empty for most kinds.
std::vector<LayerConstant> constants_of(const Layer& layer);

}  // namespace wflow::trainer
