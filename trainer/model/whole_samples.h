// SPDX-License-Identifier: Apache-2.0
// A network whose samples the ranks of a group share, for callers that compare whole outputs on every rank:
// gathers outputs, and cuts their gradients.
#pragma once

#include <memory>

#include "trainer/model/split_network.h"

namespace wflow::trainer {

// Each rank of the group passes its cells of the same samples, as local_box() says, and all get the same
// whole outputs. backward() finds this rank's part of the gradients, as make_split_network() says.
std::unique_ptr<Network> make_sharing_network(const ModelGraph& graph, FlatState& state,
                                              const Distribution& distribution, RankGroup& group,
                                              KernelChoice kernels = KernelChoice::fastest);

}  // namespace wflow::trainer
