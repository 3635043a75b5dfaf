// SPDX-License-Identifier: Apache-2.0
// In place of what needs libtorch, in a build without it: one sentence for each.
#include <limits>
#include <optional>

#include "trainer/analysis/surrogate.h"
#include "trainer/model/back_end.h"
#include "trainer/model/exported_model.h"
#include "trainer/model/model_export.h"
#include "trainer/model/split_network.h"

namespace wflow::trainer {

std::unique_ptr<Network> make_torch_network(const ModelGraph& graph, FlatState& state, KernelChoice kernels,
                                            bool allow_gpu, Precision precision) {
  return build_network(graph, state, kernels, allow_gpu, precision);
}

void set_compute_threads(int threads, bool deterministic) {
  set_kernel_threads(threads, deterministic);
}

void leave_to_torch(const std::string& what) {
  needs_torch(what);
}

bool suits_plain_loops(const Layer& /*layer*/) {
  return true;
}

bool has_torch() {
  return false;
}

void load_torch() {}

std::string torch_version() {
  return "none";
}

std::optional<std::int64_t> growth_by_torch() {
  return std::nullopt;
}

bool runs_without_torch(const ModelGraph& /*graph*/, Backend /*backend*/, Precision /*precision*/) {
  return true;
}

std::string compute_device() {
  return "cpu";
}

// The products are oneDNN's: no BLAS can be slow.
double measure_blas_gflops() {
  return std::numeric_limits<double>::infinity();
}

std::unique_ptr<Network> make_split_network(const ModelGraph& /*graph*/, FlatState& /*state*/,
                                            const Distribution& /*distribution*/, RankGroup& /*group*/,
                                            KernelChoice /*kernels*/) {
  needs_torch("'grid', by which several ranks share a sample,");
}

ModelGraph module_graph(std::string /*bytes*/, const std::string& name, const ModelTask& /*task*/) {
  needs_torch("the network in the TorchScript file " + name);
}

void fill_from_module(const ModelGraph& /*graph*/, FlatState& /*state*/) {}

std::unique_ptr<ModuleScore> open_module_score(const std::string& /*bytes*/, const std::string& name) {
  needs_torch("the TorchScript file " + name);
}

void export_module(const ModelGraph& /*graph*/, const FlatState& /*state*/, const ExportedUnits& /*units*/,
                   const std::filesystem::path& path) {
  needs_torch("the TorchScript file " + path.string());
}

void export_ensemble(const std::vector<std::filesystem::path>& /*members*/,
                     std::span<const LossConfig> /*losses*/, const std::filesystem::path& path) {
  needs_torch("the TorchScript file " + path.string());
}

std::unique_ptr<ExportedModel> open_exported_model(const std::filesystem::path& file) {
  needs_torch("the TorchScript file " + file.string());
}

std::unique_ptr<GaussianProcess> fit_gaussian_process(std::vector<double> /*points*/,
                                                      std::span<const double> /*outputs*/) {
  needs_torch("a Gaussian process");
}

}  // namespace wflow::trainer
