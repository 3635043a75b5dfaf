// SPDX-License-Identifier: Apache-2.0
// The trained network as a TorchScript file that Python's torch.jit.load opens without any of our code.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/transform.h"
#include "trainer/model/flat_state.h"

namespace wflow::trainer {

// The module's forward as TorchScript source: raw samples [N, C, D, H, W] -> physical targets [N, L], with
// transform, normalisation and de-normalisation inside.
std::string torchscript_source(const ModelGraph& graph, const TransformConfig& transform);

// Writes the module; `path` is published whole. Its attributes `targets` and `wflow` name the outputs and the
// maker.
void export_model(const ModelGraph& graph, const FlatState& state, const TransformConfig& transform,
                  const Normalisation& normalisation, const std::vector<std::string>& targets,
                  const std::string& path);

}  // namespace wflow::trainer
