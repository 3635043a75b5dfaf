// SPDX-License-Identifier: Apache-2.0
// A network whose samples the ranks of a group share, for callers that have whole samples on every rank: cuts
// inputs and gradients, and gathers outputs.
#pragma once

#include <memory>

#include "trainer/model/split_network.h"

namespace wflow::trainer {

// All ranks of the group pass the same samples, and all get the same outputs. backward() finds this rank's
// part of the gradients, as make_split_network() says.
std::unique_ptr<Network> make_sharing_network(const ModelGraph& graph, FlatState& state,
                                              const Distribution& distribution, Communicator& group,
                                              KernelChoice kernels = KernelChoice::fastest);

}  // namespace wflow::trainer
