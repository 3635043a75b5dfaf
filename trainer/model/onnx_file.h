// SPDX-License-Identifier: Apache-2.0
// The trained network as an ONNX file, for runtimes without libtorch.
#pragma once

#include <string>

#include "trainer/model/flat_state.h"
#include "trainer/model/model_export.h"

namespace wflow::trainer {

inline constexpr int kOnnxVersion = 8;  // IR version and operator set of Debian 12's libonnx (1.12)
inline constexpr int kOnnxOperators = 17;

// The file's bytes: the same function as model.pt, raw data -> physical units. Inputs are float32, by name:
// fields [N, C, D, H, W] of the training's size, numbers [N, 1]; the output is `prediction`. Metadata
// `targets` and `inputs` are JSON lists. Only of networks that fit.
std::string onnx_file(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units);

// A protocol buffer has 2 GiB at most.
bool fits_onnx(const ModelGraph& graph);

}  // namespace wflow::trainer
