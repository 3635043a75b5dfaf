// SPDX-License-Identifier: Apache-2.0
// A translation of the back end with libtorch's headers or with those of without_torch, as its own sources
// see it. What network.h declares is made of it in with_torch.cc, in without_torch/refusals.cc, and in
// on_demand/torch_on_demand.cc.
#pragma once

#include <memory>
#include <string>

#include "trainer/model/network.h"

namespace wflow::trainer {

// make_torch_network() by the layers of this translation.
std::unique_ptr<Network> build_network(const ModelGraph& graph, FlatState& state, KernelChoice kernels,
                                       bool allow_gpu, Precision precision);

// set_compute_threads() for the kernels of this translation.
void set_kernel_threads(int threads, bool deterministic);

// Not with libtorch's headers: libtorch is to compute the layer `what`. Throws.
[[noreturn]] void leave_to_torch(const std::string& what);

// For a check of the installation: loads libtorch. Throws Error{system} if that fails; does nothing in a
// build without it.
void load_torch();

// Not with libtorch's headers: false if a plain loop over the layer's values should be left to libtorch.
bool suits_plain_loops(const Layer& layer);

}  // namespace wflow::trainer
