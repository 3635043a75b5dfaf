// SPDX-License-Identifier: Apache-2.0
// Networks whose gradients have the same bits on any number of ranks (`deterministic: grid`): each sample is
// computed by itself, in the parts of one grid. A part has the same shape, and so the same kernels, whichever
// rank computes it and however many others that rank has. The gradients of the parts are added exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/model/distribution.h"
#include "trainer/model/network.h"
#include "trainer/model/split_network.h"
#include "trainer/parallel/sample_parts.h"

namespace wflow::trainer {

// The finest grid: as asked, or else 8 parts of one axis, 4 x 2 of two, 4 x 2 x 2 of three; fewer where the
// network can't be cut into as many. One part if no input is a field. Throws Error{spec} if the network can't
// be cut as asked, or into more than SampleParts::kMost parts.
SpaceGrid sample_cuts(const ModelGraph& graph, const std::vector<std::int64_t>& asked);

// The rank of `ranks` that computes each part. Throws Error{spec} if the grid of ranks does not divide the
// parts.
std::vector<int> ranks_of_parts(const SpaceGrid& parts, const SpaceGrid& ranks);

// The cells of an input that a rank passes to the network, which computes these parts.
Box box_of_parts(const Distribution& distribution, std::size_t input, std::span<const int> parts);

// Throws Error{spec} for a network whose gradients can't be equal: with norms over a batch, whose samples
// are then not computed by themselves.
void check_exact(const ModelGraph& graph);

// A network whose backward() adds to exact_sums(). Whole samples, by `inner`, which computes with `state`.
std::unique_ptr<Network> make_exact_network(const ModelGraph& graph, FlatState& state,
                                            std::unique_ptr<Network> inner);
// The same for samples in parts: all ranks of the group make the same calls, with their cells of the inputs
// (box_of_parts()), and get the same whole outputs. State and parts must outlive the network.
std::unique_ptr<Network> make_exact_network(const ModelGraph& graph, FlatState& state,
                                            const Distribution& distribution, SampleParts& parts,
                                            KernelChoice kernels = KernelChoice::fastest);

// A network whose samples the ranks of a group share, for callers that compare whole outputs on every rank:
// gathers outputs, and cuts their gradients.

// Each rank of the group passes its cells of the same samples, as local_box() says, and all get the same
// whole outputs. backward() finds this rank's part of the gradients, as make_split_network() says.
std::unique_ptr<Network> make_sharing_network(const ModelGraph& graph, FlatState& state,
                                              const Distribution& distribution, RankGroup& group,
                                              KernelChoice kernels = KernelChoice::fastest);

}  // namespace wflow::trainer
