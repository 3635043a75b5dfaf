// SPDX-License-Identifier: Apache-2.0
// A user's network (`model: my_network.pt`): a TorchScript module, exported from Python by torch.jit.script
// or trace, as a graph of one layer whose parameters and buffers are the module's own. Nothing of libtorch
// shows here.
//
// The module gets the inputs in their order, float32, normalised as every network here gets them:
// [samples, channels, depth, height, width] without the leading flat axes (a picture is [N, C, H, W], a
// series [N, C, W]), vectors [samples, values]. It gives one tensor with a row a sample. Parameters that
// require no gradient stay as they are.
#pragma once

#include <string>

#include "trainer/model/flat_state.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// `bytes`: of the file that messages call `name`. Error{data} with one sentence where they are no module,
// where it has nothing to train or values that are not float32, or where it does not turn the inputs into the
// output.
ModelGraph module_graph(std::string bytes, const std::string& name, const ModelTask& task);

// The values that it was exported with.
void fill_from_module(const ModelGraph& graph, FlatState& state);

}  // namespace wflow::trainer
