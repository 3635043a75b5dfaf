// SPDX-License-Identifier: Apache-2.0
// The back end of a program that is linked with libtorch: tests, sanitizers, and the module of on_demand.
#include <ATen/ATen.h>
#include <torch/version.h>

#include "trainer/model/back_end.h"

namespace wflow::trainer {

std::unique_ptr<Network> make_torch_network(const ModelGraph& graph, FlatState& state, KernelChoice kernels,
                                            bool allow_gpu, Precision precision) {
  return build_network(graph, state, kernels, allow_gpu, precision);
}

void set_compute_threads(int threads, bool deterministic) {
  set_kernel_threads(threads, deterministic);
}

bool has_torch() {
  return true;
}

void load_torch() {}

std::string torch_version() {
  return TORCH_VERSION;
}

std::optional<std::int64_t> growth_by_torch() {
  return 0;
}

bool runs_without_torch(const ModelGraph& /*graph*/, Backend /*backend*/, Precision /*precision*/) {
  return false;
}

std::string compute_device() {
  return at::hasCUDA() ? "cuda" : "cpu";
}

}  // namespace wflow::trainer
