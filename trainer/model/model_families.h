// SPDX-License-Identifier: Apache-2.0
// The networks that have a name (docs/train.md), and those written as a list of layers.
#pragma once

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Each throws Error{spec} with a sentence where the data do not fit.
ModelGraph build_named(const ModelConfig& config, const ModelTask& task);
ModelGraph build_layers(const ModelConfig& config, const ModelTask& task);

}  // namespace wflow::trainer
