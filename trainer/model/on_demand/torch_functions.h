// SPDX-License-Identifier: Apache-2.0
// The functions of libtorch's back end, which a module (a shared library) holds: wflow-train loads it when a
// network or a file needs libtorch. Both are of one build: the functions pass C++ objects.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/analysis/surrogate.h"
#include "trainer/model/exported_model.h"
#include "trainer/model/model_export.h"
#include "trainer/model/network.h"
#include "trainer/model/split_network.h"

namespace wflow::trainer {

struct TorchFunctions {
  decltype(&trainer::make_torch_network) make_torch_network;
  decltype(&trainer::make_split_network) make_split_network;
  decltype(&trainer::set_compute_threads) set_compute_threads;
  decltype(&trainer::compute_device) compute_device;
  decltype(&trainer::measure_blas_gflops) measure_blas_gflops;
  decltype(&trainer::module_graph) module_graph;
  decltype(&trainer::fill_from_module) fill_from_module;
  decltype(&trainer::open_module_score) open_module_score;
  decltype(&trainer::export_module) export_module;
  decltype(&trainer::export_ensemble) export_ensemble;
  decltype(&trainer::open_exported_model) open_exported_model;
  decltype(&trainer::fit_gaussian_process) fit_gaussian_process;
};

// The one name that the module exports: `const TorchFunctions* wflow_torch_functions(const char* build)`.
// Null unless `build` is kTorchModuleBuild of the module: the program is of another build.
inline constexpr const char* kTorchModuleEntry = "wflow_torch_functions";
inline constexpr const char* kTorchModuleBuild = WFLOW_TORCH_BUILD;

}  // namespace wflow::trainer
