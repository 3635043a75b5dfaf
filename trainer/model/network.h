// SPDX-License-Identifier: Apache-2.0
// Executes a layer graph. The torch back end is torch_network.cc; this header includes nothing of libtorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/flat_state.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

class ExactSums;

// Key of random numbers in a step. With layer and unit, dropout depends on these only, not on the rank that
// has the sample.
struct StepKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_sample = 0;  // position of this call's first sample in the global batch
};

class Network {
 public:
  virtual ~Network() = default;

  // The values of each of the graph's inputs, [samples, C, D, H, W] or [samples, C], in order of the inputs.
  using Inputs = std::span<const std::span<const float>>;

  // outputs: [samples, ...] of the first output, then of the second, and so on. Uses the running statistics,
  // no dropout. Discards what forward() kept: backward() must not follow.
  virtual void predict(Inputs inputs, std::int64_t samples, std::span<float> outputs) = 0;

  // Like predict(), but with the batch's statistics and dropout; keeps what backward() needs, which may
  // read the inputs again. Writes the statistics of the norms, times `samples`, to state.batch_statistics().
  virtual void forward(Inputs inputs, std::int64_t samples, const StepKey& key, std::span<float> outputs) = 0;

  // Fills state.gradients(); output_gradients are laid out as the outputs. Calls `ready(from)` whenever all
  // gradients from that position of the exchange array on are final.
  using Ready = std::function<void(std::int64_t from)>;
  virtual void backward(std::span<const float> output_gradients, const Ready& ready) = 0;

  // The gradient of the first input, [samples, ...], of the last backward(); for a graph that learns its
  // input.
  virtual void input_gradient(std::span<float> gradient) const = 0;

  // In place of a pass that this rank has no samples for: where weights are collected on use
  // (`StateOnUse`), every rank takes part in the passes of the others.
  enum class Pass { predict, forward, backward };
  virtual void sit_out(Pass /*pass*/) {}

  // Not null: backward() adds the gradients of its samples, one after the other, to these sums, laid out as
  // state.exchange(), and what it leaves in the state is undefined. The sums over the ranks have the same
  // bits on any number of ranks.
  virtual ExactSums* exact_sums() { return nullptr; }

  // Must be called after the optimiser or a checkpoint has changed values or buffers.
  virtual void values_changed() = 0;

  // The kernels in use, one line per group of layers: "conv1 .. leaky1  oneDNN (jit:avx512_core, ...)".
  virtual std::vector<std::string> describe() const = 0;

  // For networks with one input.
  void predict(std::span<const float> x, std::int64_t samples, std::span<float> outputs) {
    predict(Inputs(&x, 1), samples, outputs);
  }
  void forward(std::span<const float> x, std::int64_t samples, const StepKey& key, std::span<float> outputs) {
    forward(Inputs(&x, 1), samples, key, outputs);
  }
};

// Kernels for a convolution and the layers after it. Tests choose each by itself.
//   fastest: chosen by shape and instruction set among the others
//   direct:  hand-written kernels for few channels, libtorch for the rest
//   onednn:  oneDNN on blocked layouts wherever it has kernels, libtorch for the rest
//   library: libtorch's own for every layer; the oracle in tests
enum class KernelChoice { fastest, direct, onednn, library };

// The state must outlive the network. Runs on a GPU where libtorch finds one and `allow_gpu`.
std::unique_ptr<Network> make_torch_network(const ModelGraph& graph, FlatState& state,
                                            KernelChoice kernels = KernelChoice::fastest,
                                            bool allow_gpu = true, Precision precision = Precision::full);

// The network for `backend` and `precision`. Throws Error{spec} for `onednn` if oneDNN has kernels for none
// of the layers, and for bf16 if this machine has no instructions for it. fp16 on a processor rounds as a GPU
// does and computes in 32 bits: for tests of a setting, not for speed.
std::unique_ptr<Network> make_network(Backend backend, Precision precision, const ModelGraph& graph,
                                      FlatState& state);

// Sets the threads of libtorch's and the BLAS's kernels; their defaults do not fit (1, and all cores per
// rank).
void set_compute_threads(int threads, bool deterministic);
// Number of threads for a long loop of this library's own kernels.
int compute_threads();
// False in a build without libtorch (-DWFLOW_TORCH=OFF): only layers that oneDNN or own kernels compute.
bool has_torch();
// Throws Error{spec}: this build has no libtorch, which `what` needs.
[[noreturn]] void needs_torch(const std::string& what);
std::string torch_version();  // "none" without libtorch
// The bytes by which this process grows when it loads libtorch; 0: it is there already. None: there is none.
std::optional<std::int64_t> growth_by_torch();
// True if make_network() computes the network on a processor without libtorch. Builds it once, without
// values.
bool runs_without_torch(const ModelGraph& graph, Backend backend, Precision precision);
std::string onednn_version();  // "2.6.3"
std::string compute_device();
// GFLOP/s of a 256 x 256 x 256 product: tens with an optimised BLAS, about 1 with the reference BLAS.
double measure_blas_gflops();

// A user's network (`model: my_network.pt`): a TorchScript module, exported from Python by torch.jit.script
// or trace, as a graph of one layer that has the parameters and buffers of the module.
//
// The module gets the inputs in their order, in float32 and normalised like the inputs of every network:
// [samples, channels, depth, height, width] without the leading flat axes (an image is [N, C, H, W], a
// series [N, C, W]), vectors [samples, values]. It returns one tensor with a row per sample. Parameters that
// require no gradient stay as they are.
//
// `bytes`: contents of the file; `name`: its name in messages. Error{data} if they are not a module, if it
// has nothing to train or values that are not float32, or if it does not map the inputs to the output.
ModelGraph module_graph(std::string bytes, const std::string& name, const ModelTask& task);

// Sets the values that the module was exported with.
void fill_from_module(const ModelGraph& graph, FlatState& state);

}  // namespace wflow::trainer
