// SPDX-License-Identifier: Apache-2.0
// For tests: recurrent, attention and spectral layers as their papers define them, sample by sample and mode
// by mode, without the back end's own code.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// The output of a layer with parameters `p` and inputs `in`, for autograd.
torch::Tensor sequence_oracle(const Layer& layer, const std::vector<torch::Tensor>& p,
                              const std::vector<torch::Tensor>& in);

}  // namespace wflow::trainer
