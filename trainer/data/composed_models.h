// SPDX-License-Identifier: Apache-2.0
// Networks by name that are made of several parts with losses of their own: gan, wae, cycle,
// semi_supervised and inference. Each name stands for layers, heads and updates that a user may write too;
// train.yaml of a run has them.
#pragma once

#include "trainer/config.h"
#include "trainer/data/sample_source.h"

namespace wflow::trainer {

// The layer of the network inference that has the embedding of an observation.
inline constexpr const char* kObservationLayer = "observation";

bool is_composed(ModelName name);

// The configuration with the lists in place of the name. Error{spec} if the data do not fit.
TrainConfig expanded(const TrainConfig& config, const DatasetInfo& info);

}  // namespace wflow::trainer
