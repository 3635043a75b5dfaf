// SPDX-License-Identifier: Apache-2.0
// The back end of wflow-train: layers that oneDNN and own kernels compute are its own, and libtorch is loaded
// when something else is needed: another layer, a rank grid, a GPU, a TorchScript file. Loading takes half a
// second of a core and 180 MB, and most ranks of most trainings never need it.
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/program_file.h"
#include "base/trainer_mpi.h"
#include "trainer/model/back_end.h"
#include "trainer/model/on_demand/torch_functions.h"
#include "trainer/model/onednn_function.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// A norm, pool or softmax with more values than these is left to libtorch, whose loops are faster.
constexpr std::int64_t kFewValues = 32;
// Measured with Debian's libtorch 1.13.
constexpr std::int64_t kTorchBytes = std::int64_t{134} << 20;

// Ends build_network() where a layer is not of this back end.
struct LeftToTorch {};

struct ComputeThreads {
  int number = 1;
  bool deterministic = false;
};

class TorchModule {
 public:
  // Loads libtorch at the first call. Throws Error{system}.
  const TorchFunctions& functions() {
    const std::lock_guard lock(mutex_);
    if (functions_ == nullptr) {
      functions_ = load();
      if (threads_) functions_->set_compute_threads(threads_->number, threads_->deterministic);
    }
    return *functions_;
  }
  // Null before the first call of functions().
  const TorchFunctions* loaded() {
    const std::lock_guard lock(mutex_);
    return functions_;
  }
  void set_compute_threads(int number, bool deterministic) {
    const std::lock_guard lock(mutex_);
    threads_ = {number, deterministic};
    if (functions_ != nullptr) functions_->set_compute_threads(number, deterministic);
  }

 private:
  static const TorchFunctions* load() {
    const fs::path file =
        installed_library(built_with_mpich() ? "libwflow_torch_mpich.so" : "libwflow_torch.so");
    void* module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr)
      throw Error(ExitCode::system,
                  fmt::format("can't load libtorch: {}; is the installation whole?", ::dlerror()));
    using Entry = const TorchFunctions* (*)(const char*);
    const auto entry = reinterpret_cast<Entry>(::dlsym(module, kTorchModuleEntry));
    const TorchFunctions* functions = entry == nullptr ? nullptr : entry(kTorchModuleBuild);
    if (functions == nullptr)
      throw Error(ExitCode::system,
                  fmt::format("{} is of another build of wflow than this program ({}): install both anew",
                              file.string(), kTorchModuleBuild));
    return functions;
  }

  std::mutex mutex_;
  const TorchFunctions* functions_ = nullptr;
  std::optional<ComputeThreads> threads_;
};

TorchModule& torch() {
  static TorchModule module;
  return module;
}

// True if libtorch may compute on a GPU of this machine: then it computes all.
bool may_have_gpu() {
  if (!WFLOW_TORCH_HAS_GPU) return false;
  std::error_code ignored;
  return fs::exists("/dev/nvidiactl", ignored) || fs::exists("/dev/kfd", ignored);
}

}  // namespace

void leave_to_torch(const std::string& /*what*/) {
  throw LeftToTorch();
}

bool suits_plain_loops(const Layer& layer) {
  if (is_function(layer.kind)) return true;
  switch (layer.kind) {
    case LayerKind::add:
    case LayerKind::subtract:
    case LayerKind::concatenate:
    case LayerKind::stop:
    case LayerKind::linear:
    case LayerKind::lstm:
    case LayerKind::gru:
    case LayerKind::wrap:
      return true;
    case LayerKind::convolution:
    case LayerKind::transposed_convolution:
      return false;
    default:
      return layer.output.count() <= kFewValues && layer.input.count() <= kFewValues;
  }
}

std::unique_ptr<Network> make_torch_network(const ModelGraph& graph, FlatState& state, KernelChoice kernels,
                                            bool allow_gpu, Precision precision) {
  const bool own = kernels == KernelChoice::fastest || kernels == KernelChoice::onednn;
  if (own && precision == Precision::full && !(allow_gpu && may_have_gpu())) {
    try {
      return build_network(graph, state, kernels, allow_gpu, precision);
    } catch (const LeftToTorch&) {
    }
  }
  return torch().functions().make_torch_network(graph, state, kernels, allow_gpu, precision);
}

std::unique_ptr<Network> make_split_network(const ModelGraph& graph, FlatState& state,
                                            const Distribution& distribution, RankGroup& group,
                                            KernelChoice kernels) {
  return torch().functions().make_split_network(graph, state, distribution, group, kernels);
}

void set_compute_threads(int threads, bool deterministic) {
  set_kernel_threads(threads, deterministic);
  torch().set_compute_threads(threads, deterministic);
}

bool has_torch() {
  return true;
}

void load_torch() {
  torch().functions();
}

std::string torch_version() {
  return TORCH_VERSION;
}

std::optional<std::int64_t> growth_by_torch() {
  return torch().loaded() == nullptr ? kTorchBytes : 0;
}

bool runs_without_torch(const ModelGraph& graph, Backend backend, Precision precision) {
  if (backend == Backend::torch || precision != Precision::full || may_have_gpu()) return false;
  try {
    FlatState state(graph);
    const auto kernels = backend == Backend::onednn ? KernelChoice::onednn : KernelChoice::fastest;
    build_network(graph, state, kernels, false, precision);
    return true;
  } catch (const LeftToTorch&) {
    return false;
  }
}

std::string compute_device() {
  return may_have_gpu() ? torch().functions().compute_device() : "cpu";
}

// Before libtorch is loaded, no product is the BLAS's.
double measure_blas_gflops() {
  const TorchFunctions* loaded = torch().loaded();
  return loaded == nullptr ? std::numeric_limits<double>::infinity() : loaded->measure_blas_gflops();
}

ModelGraph module_graph(std::string bytes, const std::string& name, const ModelTask& task) {
  return torch().functions().module_graph(std::move(bytes), name, task);
}

void fill_from_module(const ModelGraph& graph, FlatState& state) {
  torch().functions().fill_from_module(graph, state);
}

std::unique_ptr<ModuleScore> open_module_score(const std::string& bytes, const std::string& name) {
  return torch().functions().open_module_score(bytes, name);
}

void export_module(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                   const fs::path& path) {
  torch().functions().export_module(graph, state, units, path);
}

void export_ensemble(const std::vector<fs::path>& members, std::span<const LossConfig> losses,
                     const fs::path& path) {
  torch().functions().export_ensemble(members, losses, path);
}

std::unique_ptr<ExportedModel> open_exported_model(const fs::path& file) {
  return torch().functions().open_exported_model(file);
}

std::unique_ptr<GaussianProcess> fit_gaussian_process(std::vector<double> points,
                                                      std::span<const double> outputs) {
  return torch().functions().fit_gaussian_process(std::move(points), outputs);
}

}  // namespace wflow::trainer
