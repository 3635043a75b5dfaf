// SPDX-License-Identifier: Apache-2.0
// The entry of the module that holds libtorch.
#include <string_view>

#include "trainer/model/on_demand/torch_functions.h"

extern "C" __attribute__((visibility("default"))) const wflow::trainer::TorchFunctions* wflow_torch_functions(
    const char* build) {
  namespace trainer = wflow::trainer;
  static constexpr trainer::TorchFunctions kFunctions = {
      trainer::make_torch_network, trainer::make_split_network,  trainer::set_compute_threads,
      trainer::compute_device,     trainer::measure_blas_gflops, trainer::module_graph,
      trainer::fill_from_module,   trainer::open_module_score,   trainer::export_module,
      trainer::export_ensemble,    trainer::open_exported_model, trainer::fit_gaussian_process,
  };
  return std::string_view(build) == trainer::kTorchModuleBuild ? &kFunctions : nullptr;
}
