// SPDX-License-Identifier: Apache-2.0
// What executes a layer graph. The torch back end is in torch_network.cc; nothing of libtorch shows here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/flat_state.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// What a dropout layer's zeros depend on besides layer and unit: not on the rank that has the sample.
struct StepKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_sample = 0;  // place in the global batch of the first sample of this call
};

class Network {
 public:
  virtual ~Network() = default;

  // The values of each of the graph's inputs, [samples, C, D, H, W] or [samples, C], in order of the inputs.
  using Inputs = std::span<const std::span<const float>>;

  // outputs: [samples, ...] of the first output, then of the second, and so on. With the running statistics,
  // without dropout.
  virtual void predict(Inputs inputs, std::int64_t samples, std::span<float> outputs) = 0;

  // As predict, with the batch's statistics and dropout; keeps what backward() needs. Puts the statistics of
  // the norms, times `samples`, into state.batch_statistics().
  virtual void forward(Inputs inputs, std::int64_t samples, const StepKey& key, std::span<float> outputs) = 0;

  // Fills state.gradients(); output_gradients are laid out as the outputs. Calls `ready(place)` whenever all
  // gradients from that place of the exchange array on are final.
  using Ready = std::function<void(std::int64_t from)>;
  virtual void backward(std::span<const float> output_gradients, const Ready& ready) = 0;

  // To be called when values or buffers have been changed by others: the optimiser, a checkpoint.
  virtual void values_changed() = 0;

  // What computes, a line a group of layers: "conv1 .. leaky1  oneDNN (jit:avx512_core, ...)".
  virtual std::vector<std::string> describe() const = 0;

  // For networks with one input.
  void predict(std::span<const float> x, std::int64_t samples, std::span<float> outputs) {
    predict(Inputs(&x, 1), samples, outputs);
  }
  void forward(std::span<const float> x, std::int64_t samples, const StepKey& key, std::span<float> outputs) {
    forward(Inputs(&x, 1), samples, key, outputs);
  }
};

// What computes a convolution and the layers behind it, in tests each by itself.
//   fastest: chosen by shape and instruction set among the others
//   direct:  hand-written kernels for few channels, libtorch for the rest
//   onednn:  oneDNN on blocked layouts wherever it has kernels, libtorch for the rest
//   library: libtorch's own for every layer; the oracle in tests
enum class KernelChoice { fastest, direct, onednn, library };

// The state must outlive the network. Runs on a GPU where libtorch finds one and `allow_gpu`.
std::unique_ptr<Network> make_torch_network(const ModelGraph& graph, FlatState& state,
                                            KernelChoice kernels = KernelChoice::fastest,
                                            bool allow_gpu = true, Precision precision = Precision::full);

// The network that `backend` and `precision` ask for. Throws Error{spec} where `onednn` is asked for and
// oneDNN has kernels for none of the layers, and where bf16 is and this machine has no instructions for it.
// fp16 on a processor rounds as a GPU does and computes in 32 bits: for tests of a setting, not for speed.
std::unique_ptr<Network> make_network(Backend backend, Precision precision, const ModelGraph& graph,
                                      FlatState& state);

// Threads for libtorch's and the BLAS's kernels; the defaults of neither fit (1, and all cores a rank).
void set_compute_threads(int threads, bool deterministic);
// On how many threads a long loop of this library's own kernels runs.
int compute_threads();
std::string torch_version();
std::string onednn_version();  // "2.6.3"
std::string compute_device();
// GFLOP/s of a 256 x 256 x 256 product: an optimised BLAS gives tens, the reference one about 1.
double measure_blas_gflops();

// A user's network (`model: my_network.pt`): a TorchScript module, exported from Python by torch.jit.script
// or trace, as a graph of one layer whose parameters and buffers are the module's own. Nothing of libtorch
// shows here.
//
// The module gets the inputs in their order, float32, normalised as every network here gets them:
// [samples, channels, depth, height, width] without the leading flat axes (a picture is [N, C, H, W], a
// series [N, C, W]), vectors [samples, values]. It gives one tensor with a row a sample. Parameters that
// require no gradient stay as they are.
//
// `bytes`: of the file that messages call `name`. Error{data} with one sentence where they are no module,
// where it has nothing to train or values that are not float32, or where it does not turn the inputs into the
// output.
ModelGraph module_graph(std::string bytes, const std::string& name, const ModelTask& task);

// The values that it was exported with.
void fill_from_module(const ModelGraph& graph, FlatState& state);

}  // namespace wflow::trainer
