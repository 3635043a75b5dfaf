// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <malloc.h>

#include <time.h>

#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include "base/error.h"
#include "trainer/model/direct_block.h"
#include "trainer/model/network.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

class TorchNetwork final : public Network {
 public:
  TorchNetwork(const ModelGraph& graph, FlatState& state, KernelChoice kernels, bool allow_gpu);

  void predict(std::span<const float> x, std::int64_t samples, std::span<float> outputs) override {
    const at::NoGradGuard no_gradients;
    at::Tensor y = to_device(x, samples);
    for (const Stage& stage : stages_) y = stage.layer->predict(y);
    to_host(y, outputs);
  }

  void forward(std::span<const float> x, std::int64_t samples, const StepKey& key,
               std::span<float> outputs) override {
    const at::NoGradGuard no_gradients;
    at::Tensor y = to_device(x, samples);
    for (const Stage& stage : stages_) y = stage.layer->forward(y, key);
    to_host(y, outputs);
    if (!on_cpu_) download(state_.batch_statistics(), device_statistics_);
  }

  void backward(std::span<const float> output_gradients, const Ready& ready) override {
    const at::NoGradGuard no_gradients;
    const auto samples = static_cast<std::int64_t>(output_gradients.size()) / graph_.outputs;
    at::Tensor gradient = host_tensor(output_gradients, {samples, graph_.outputs}).to(device_);
    for (std::size_t i = stages_.size(); i-- > 0;) {
      const Stage& stage = stages_[i];
      gradient = stage.layer->backward(gradient, i > 0);
      if (stage.gradients_from < 0) continue;
      if (!on_cpu_) {
        const std::int64_t from = stage.gradients_from - state_.gradients_begin();
        download(state_.gradients().subspan(static_cast<std::size_t>(from),
                                            static_cast<std::size_t>(stage.gradient_floats)),
                 device_gradients_.narrow(0, from, stage.gradient_floats));
      }
      ready(stage.gradients_from);
    }
  }

  void values_changed() override {
    if (on_cpu_) return;
    device_values_.copy_(host_tensor(state_.values(), {state_.parameters().size}));
    device_buffers_.copy_(host_tensor(state_.buffer_values(), {state_.buffers().size}));
  }

 private:
  struct Stage {
    std::unique_ptr<TorchLayer> layer;
    std::int64_t gradients_from = -1;  // place in the exchange array; -1: no parameters
    std::int64_t gradient_floats = 0;
  };

  static at::Tensor host_tensor(std::span<const float> values, at::IntArrayRef shape) {
    // libtorch has no tensors of constants; nothing writes to this one.
    return at::from_blob(const_cast<float*>(values.data()), shape, at::TensorOptions().dtype(at::kFloat));
  }
  at::Tensor to_device(std::span<const float> x, std::int64_t samples) const {
    const auto& e = graph_.input.extent;
    return host_tensor(x, {samples, graph_.input.channels, e[0], e[1], e[2]}).to(device_);
  }
  static void to_host(const at::Tensor& y, std::span<float> outputs) {
    WFLOW_CHECK(y.numel() == static_cast<std::int64_t>(outputs.size()));
    host_tensor(outputs, y.sizes()).copy_(y);
  }
  static void download(std::span<float> to, const at::Tensor& from) {
    host_tensor(to, from.sizes()).copy_(from);
  }

  ModelGraph graph_;
  FlatState& state_;
  at::Device device_ = at::Device(at::kCPU);
  bool on_cpu_ = true;
  // On the CPU these alias the state's arrays; on a GPU they are copies of them.
  at::Tensor device_values_;
  at::Tensor device_gradients_;
  at::Tensor device_buffers_;
  at::Tensor device_statistics_;
  std::vector<Stage> stages_;
};

TorchNetwork::TorchNetwork(const ModelGraph& graph, FlatState& state, KernelChoice kernels, bool allow_gpu)
    : graph_(graph), state_(state) {
  if (allow_gpu && at::hasCUDA()) device_ = at::Device(at::kCUDA);
  on_cpu_ = device_.is_cpu();
  const auto mirror = [&](std::span<float> values) {
    return host_tensor(values, {static_cast<std::int64_t>(values.size())}).to(device_);
  };
  device_values_ = mirror(state.values());
  device_gradients_ = mirror(state.gradients());
  device_buffers_ = mirror(state.buffer_values());
  device_statistics_ = mirror(state.batch_statistics());
  const auto view = [](const at::Tensor& flat, const FlatEntry& entry) {
    return flat.narrow(0, entry.offset, entry.count).view(entry.spec.shape);
  };
  const std::span<const Layer> layers = graph.layers;
  for (std::size_t at = 0; at < layers.size();) {
    const std::size_t fused =
        on_cpu_ && kernels == KernelChoice::fastest ? direct_block_length(layers.subspan(at)) : 0;
    const std::span<const Layer> group = layers.subspan(at, std::max<std::size_t>(1, fused));
    Stage stage;
    std::vector<LayerTensors> tensors(group.size());
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (const ParameterSpec& spec : group[i].parameters) {
        const FlatEntry& entry = *state.parameters().find(spec.name);
        tensors[i].parameters.push_back({view(device_values_, entry), view(device_gradients_, entry)});
        if (stage.gradients_from < 0) stage.gradients_from = state.gradients_begin() + entry.offset;
        stage.gradient_floats = state.gradients_begin() + entry.offset + entry.count - stage.gradients_from;
      }
      for (const ParameterSpec& spec : group[i].buffers) {
        const FlatEntry& entry = *state.buffers().find(spec.name);
        tensors[i].running.push_back(view(device_buffers_, entry));
        tensors[i].statistics.push_back(view(device_statistics_, entry));
      }
    }
    stage.layer =
        fused > 0 ? make_direct_block(group, tensors) : make_torch_layer(group.front(), tensors.front());
    stages_.push_back(std::move(stage));
    at += group.size();
  }
}

}  // namespace

std::unique_ptr<Network> make_torch_network(const ModelGraph& graph, FlatState& state, KernelChoice kernels,
                                            bool allow_gpu) {
  return std::make_unique<TorchNetwork>(graph, state, kernels, allow_gpu);
}

void set_compute_threads(int threads, bool deterministic) {
  // Tensors of a step are as large as those of the last: keep their memory instead of giving it back and
  // faulting it in again, which took a third of the time.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  at::set_num_threads(threads);
  // OpenBLAS built on pthreads does not hear OpenMP's setting. Looked up by name: which BLAS libtorch is
  // bound to is the system's choice.
  using SetThreads = void (*)(int);
  if (auto* set = reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
  at::globalContext().setDeterministicAlgorithms(deterministic, true);
}

std::string torch_version() {
  return TORCH_VERSION;
}

std::string compute_device() {
  return at::hasCUDA() ? "cuda" : "cpu";
}

double measure_blas_gflops() {
  constexpr std::int64_t n = 256;
  const at::Tensor a = at::ones({n, n});
  const at::Tensor b = at::ones({n, n});
  at::Tensor c = at::mm(a, b);  // warm
  // CPU time of this thread: on a loaded machine wall time would blame the library.
  const auto cpu_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    const double begin = cpu_seconds();
    at::mm_out(c, a, b);
    best = std::min(best, cpu_seconds() - begin);
  }
  return 2.0 * n * n * n / best * 1e-9;
}

}  // namespace wflow::trainer
