// SPDX-License-Identifier: Apache-2.0
// Executes a network whose samples the ranks of a group share, as distribution.h plans it: each rank computes
// its box of each field, and the ranks exchange halos, sums and whole fields.
//
// With KernelChoice::library, outputs and gradients of values are those of one rank with it, bit for bit
// where libtorch adds up a cell's terms in an order that does not depend on the field's size. Elsewhere, and
// by oneDNN, they differ by rounding, some 1e-7 of the largest value: libtorch chooses another kernel for a
// small convolution than for a large one, and adds up the moments of norms and global means in single
// precision, which are doubles here. README.md lists the layers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/model/distribution.h"
#include "trainer/model/network.h"
#include "trainer/parallel/rank_group.h"

namespace wflow::trainer {

// All ranks of the group make the same calls, with the same samples: inputs and outputs are cut as
// local_box() says, and an output that is whole, and so its gradient, is the same on all of them.
//
// backward() finds this rank's part of the weights' gradients: their sum over all ranks is the gradient.
// Layers that every rank computes whole find the same gradient everywhere, which counts on the first rank of
// the group only: a sum with zeros is exact, a mean of equal numbers is not. For the same reason the
// statistics of the norms are on the first rank, and 0 on the others.
//
// State and group must outlive the network. Throws Error{spec} for a graph that learns its input. Kernels:
// library, or else oneDNN for convolutions wherever it has fast kernels for the rank's box.
std::unique_ptr<Network> make_split_network(const ModelGraph& graph, FlatState& state,
                                            const Distribution& distribution, RankGroup& group,
                                            KernelChoice kernels = KernelChoice::fastest);

}  // namespace wflow::trainer
