// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>

#include "base/error.h"
#include "trainer/model/back_end.h"
#include "trainer/model/distribution.h"
#include "trainer/model/model_graph.h"
#include "trainer/model/network.h"
#include "trainer/model/onednn_block.h"
#include "trainer/model/onednn_convolution.h"
#include "trainer/model/state_tensors.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

// Fraction of oneDNN's work that is not for channels that only fill a block. The hand-written kernels compute
// only existing channels, at 0.4 to 0.6 of oneDNN's speed (measured with AVX-512, 32^3 and 64^3 cells).
double useful_part(const Layer& convolution, const OnednnBlock& block, bool wants_input) {
  const auto part = [&](std::int64_t channels) {
    const std::int64_t size = block.output_block();
    return static_cast<double>(channels) / static_cast<double>((channels + size - 1) / size * size);
  };
  return part(convolution.output.channels) *
         (block.input_block() == 0 && !wants_input ? 1 : part(convolution.input.channels));
}

// Blocks of 8 channels on a processor with vectors of 16 use half of each vector, and a matrix product for
// the weight gradient. The hand-written kernels are a sixth faster there (32^3 cells, 8 and 16 channels).
bool fills_vectors(const OnednnBlock& block) {
  return block.output_block() == 16 || !onednn_instruction_set().starts_with("AVX512");
}

class TorchNetwork final : public Network {
 public:
  TorchNetwork(const ModelGraph& graph, FlatState& state, KernelChoice kernels, bool allow_gpu,
               Precision precision);

  using Network::forward;
  using Network::predict;

  void predict(Inputs inputs, std::int64_t samples, std::span<float> outputs) override {
    const at::NoGradGuard no_gradients;
    run(inputs, samples, outputs, [](TorchLayer& layer, const Tensors& x) { return layer.predict(x); });
  }

  void forward(Inputs inputs, std::int64_t samples, const StepKey& key, std::span<float> outputs) override {
    const at::NoGradGuard no_gradients;
    run(inputs, samples, outputs, [&](TorchLayer& layer, const Tensors& x) { return layer.forward(x, key); });
    arrays_.average_statistics();
  }

  void backward(std::span<const float> output_gradients, const Ready& ready) override {
    const at::NoGradGuard no_gradients;
    const auto samples = static_cast<std::int64_t>(output_gradients.size()) / graph_.output_count();
    Tensors gradients = gradients_of_outputs(output_gradients, samples);
    StateInPass arrays = state_in(arrays_, stages_, Pass::backward);
    for (std::size_t i = stages_.size(); i-- > 0;) {
      const Stage& stage = stages_[i];
      arrays.begin();
      backward_stage(stage, samples, gradients);
      arrays.end();
      stage.arrays.add_shared();
      if (stage.arrays.gradients_from < 0) continue;
      arrays_.download_gradients(stage.arrays);
      ready(stage.arrays.final_from);
    }
    if (graph_.learns_input) input_gradient_ = gradients.front();
  }

  void input_gradient(std::span<float> gradient) const override { to_host(input_gradient_, gradient); }

  std::vector<std::string> describe() const override {
    std::vector<std::string> lines;
    for (const Stage& stage : stages_) lines.push_back(stage.text);
    return lines;
  }

  void values_changed() override { arrays_.upload(); }
  void sit_out(Pass pass) override { state_in(arrays_, stages_, pass).pass_by(); }

 private:
  using Tensors = TorchLayer::Tensors;

  // A layer, or several that one block replaces.
  struct Stage {
    std::unique_ptr<TorchLayer> layer;
    std::vector<std::size_t> inputs;  // values
    std::size_t output = 0;
    std::vector<bool> wanted;  // which inputs need a gradient
    bool fields = false;       // reads tensors of five dimensions, vectors too
    bool gives_fields = false;
    int reads_block = 0;  // channels of a block in oneDNN's layout; 0: libtorch's layout
    int gives_block = 0;
    std::string text;
    StageArrays arrays;
  };

  std::vector<std::int64_t> sizes(std::int64_t samples, std::size_t value, bool as_field) const {
    const TensorShape& shape = graph_.shape_of(value);
    if (!as_field && shape.voxels() == 1) return {samples, shape.channels};
    const auto& e = shape.extent;
    return {samples, shape.channels, e[0], e[1], e[2]};
  }

  template <class Call>
  void run(Inputs inputs, std::int64_t samples, std::span<float> outputs, Call call) {
    WFLOW_CHECK(inputs.size() == graph_.inputs.size());
    Tensors values(graph_.inputs.size() + graph_.layers.size());
    std::vector<int> uses = uses_.readers;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      values[i] = alias_of(inputs[i], sizes(samples, i, false)).to(device_);
    StateInPass arrays = state_in(arrays_, stages_, Pass::forward);
    for (const Stage& stage : stages_) {
      arrays.begin();
      Tensors x;
      for (const std::size_t value : stage.inputs) {
        x.push_back(in_order(values[value], value, block_of_[value], stage.reads_block, samples));
        if (stage.fields && stage.reads_block == 0) x.back() = x.back().reshape(sizes(samples, value, true));
        if (--uses[value] == 0) values[value].reset();
      }
      at::Tensor y = call(*stage.layer, x);
      arrays.end();
      values[stage.output] = stage.gives_block != 0 ? y : y.reshape(sizes(samples, stage.output, false));
    }
    std::size_t at = 0;
    for (const ModelGraph::Output& output : graph_.outputs) {
      const auto count = static_cast<std::size_t>(samples * graph_.shape_of(output.value).count());
      to_host(in_order(values[output.value], output.value, block_of_[output.value], 0, samples),
              outputs.subspan(at, count));
      at += count;
    }
    WFLOW_CHECK(at == outputs.size());
  }

  Tensors gradients_of_outputs(std::span<const float> all, std::int64_t samples) {
    Tensors gradients(graph_.inputs.size() + graph_.layers.size());
    std::size_t at = 0;
    for (const ModelGraph::Output& output : graph_.outputs) {
      const auto count = static_cast<std::size_t>(samples * graph_.shape_of(output.value).count());
      const at::Tensor gradient =
          alias_of(all.subspan(at, count), sizes(samples, output.value, false)).to(device_);
      add(gradients[output.value], in_order(gradient, output.value, 0, block_of_[output.value], samples));
      at += count;
    }
    return gradients;
  }

  static void add(at::Tensor& sum, const at::Tensor& part) {
    if (part.defined()) sum = sum.defined() ? sum.add(part) : part;
  }

  void backward_stage(const Stage& stage, std::int64_t samples, Tensors& gradients) {
    if (!uses_.learned[stage.output]) {
      for (const auto& unreached : stage.arrays.gradients) unreached.second.zero_();
      return;
    }
    at::Tensor gradient = std::move(gradients[stage.output]);
    WFLOW_CHECK(gradient.defined());  // every layer leads to an output
    if (stage.gives_fields && stage.gives_block == 0)
      gradient = gradient.reshape(sizes(samples, stage.output, true));
    const Tensors found = stage.layer->backward(gradient, stage.wanted);
    for (std::size_t i = 0; i < stage.inputs.size(); ++i) {
      if (!stage.wanted[i]) continue;
      const std::size_t value = stage.inputs[i];
      const at::Tensor part =
          stage.reads_block != 0 ? found[i] : found[i].reshape(sizes(samples, value, false));
      add(gradients[value], in_order(part, value, stage.reads_block, block_of_[value], samples));
    }
  }

  // A value, or its gradient, in blocks of another number of channels; 0: in libtorch's layout.
  at::Tensor in_order(const at::Tensor& x, std::size_t value, int from, int to, std::int64_t samples) {
    if (from == to) return x;
    if (from != 0) {
      at::Tensor plain = at::empty(sizes(samples, value, false), x.options());
      reorder(value, from).to_plain(samples, x.data_ptr<float>(), plain.data_ptr<float>());
      return in_order(plain, value, 0, to, samples);
    }
    BlockedReorder& blocks = reorder(value, to);
    at::Tensor ordered = at::empty({samples * blocks.blocked_count()}, x.options());
    blocks.to_blocked(samples, x.contiguous().data_ptr<float>(), ordered.data_ptr<float>());
    return ordered;
  }
  BlockedReorder& reorder(std::size_t value, int block) {
    return reorders_.try_emplace({value, block}, graph_.shape_of(value), block).first->second;
  }

  static void to_host(const at::Tensor& y, std::span<float> outputs) {
    WFLOW_CHECK(y.numel() == static_cast<std::int64_t>(outputs.size()));
    alias_of(outputs, y.sizes()).copy_(y);
  }
  std::size_t value_of(std::size_t layer) const { return graph_.inputs.size() + layer; }
  void add_tiled_stage(const TiledChain& chain, KernelChoice kernels);
  std::size_t add_fused_stage(std::span<const Layer> chain, std::size_t first, KernelChoice kernels);
  std::size_t add_wrapped_stage(std::span<const Layer> chain, std::size_t first, KernelChoice kernels);
  bool onednn_is_faster(std::span<const Layer> chain, bool wants_input);
  std::size_t add_stage_in_blocks(std::span<const Layer> chain, std::size_t first);
  int common_block(const Layer& layer) const;
  void add_stage(std::span<const Layer> group, std::size_t first, const char* text, Stage stage);

  ModelGraph graph_;
  Precision precision_;
  at::Device device_;
  bool on_cpu_;
  StateTensors arrays_;
  std::vector<Stage> stages_;
  std::vector<int> block_of_;  // per value: channels of a block; 0: libtorch's layout
  std::map<std::pair<std::size_t, int>, BlockedReorder> reorders_;  // by value and block
  std::shared_ptr<BlockScratch> scratch_ = std::make_shared<BlockScratch>();
  at::Tensor input_gradient_;
  const GraphUses uses_;
};

TorchNetwork::TorchNetwork(const ModelGraph& graph, FlatState& state, KernelChoice kernels, bool allow_gpu,
                           Precision precision)
    : graph_(graph),
      precision_(precision),
      device_(allow_gpu && at::hasCUDA() ? at::kCUDA : at::kCPU),
      on_cpu_(device_.is_cpu()),
      arrays_(state, device_),
      uses_(uses_of(graph)) {
  block_of_.assign(uses_.readers.size(), 0);
  const std::span<const Layer> layers = graph_.layers;
  auto tiled = on_cpu_ ? graph_.tiled.begin() : graph_.tiled.end();
  for (std::size_t at = 0; at < layers.size();) {
    if (tiled != graph_.tiled.end() && tiled->first == at) {
      add_tiled_stage(cut_into_tiles(graph_, *tiled), kernels);
      at += tiled++->count;
      continue;
    }
    const std::span<const Layer> chain = layers.subspan(at, chain_length(graph_, uses_, at));
    std::size_t length = on_cpu_ ? add_fused_stage(chain, at, kernels) : 0;
    if (length == 0) {
      length = 1;
      Stage stage;
      const std::vector<LayerTensors> tensors = arrays_.tensors_of(chain.first(1), stage.arrays);
      stage.layer = make_torch_layer(chain[0], tensors.front(), may_overwrite_input(graph_, uses_, chain[0]),
                                     precision_);
      add_stage(chain.first(1), at, "libtorch", std::move(stage));
    }
    at += length;
  }
  std::vector<StageArrays*> all;
  for (Stage& stage : stages_) all.push_back(&stage.arrays);
  arrays_.finish(all);
}

void TorchNetwork::add_tiled_stage(const TiledChain& chain, KernelChoice kernels) {
  Stage stage;
  const std::span<const Layer> group =
      std::span<const Layer>(graph_.layers).subspan(chain.first, chain.count);
  const std::vector<LayerTensors> tensors = arrays_.tensors_of(group, stage.arrays);
  stage.layer =
      make_tiled_block(chain, tensors, uses_.learned[group.front().inputs.front()], kernels, precision_);
  add_stage(group, chain.first, fmt::format("{} tiles", chain.tiles.size()).c_str(), std::move(stage));
}

// Returns the number of layers that the new stage replaces; 0: no stage was added.
std::size_t TorchNetwork::add_fused_stage(std::span<const Layer> chain, std::size_t first,
                                          KernelChoice kernels) {
  if (kernels == KernelChoice::library || precision_ == Precision::fp16) return 0;
  if (chain[0].kind == LayerKind::linear && kernels != KernelChoice::direct) {
    Stage stage;
    const std::vector<LayerTensors> tensors = arrays_.tensors_of(chain.first(1), stage.arrays);
    stage.layer = make_dense_block(tensors.front());
    add_stage(chain.first(1), first, "product by oneDNN", std::move(stage));
    return 1;
  }
  if (chain[0].kind == LayerKind::wrap) return add_wrapped_stage(chain, first, kernels);
  if (is_recurrent(chain[0].kind) || chain[0].kind == LayerKind::spectral_convolution) {
    Stage stage;
    const std::vector<LayerTensors> tensors = arrays_.tensors_of(chain.first(1), stage.arrays);
    stage.layer = is_recurrent(chain[0].kind) ? make_recurrent_block(chain[0], tensors.front())
                                              : make_spectral_block(chain[0], tensors.front());
    add_stage(chain.first(1), first, "products by oneDNN", std::move(stage));
    return 1;
  }
  const std::size_t direct = kernels == KernelChoice::onednn ? 0 : direct_block_length(chain);
  const std::size_t blocked = kernels == KernelChoice::direct ? 0 : onednn_block_length(chain);
  const bool wants_input = uses_.learned[chain[0].inputs.front()];
  if (blocked > 0) {
    Stage stage;
    const std::span<const Layer> group = chain.first(blocked);
    const std::vector<LayerTensors> tensors = arrays_.tensors_of(group, stage.arrays);
    auto block = make_onednn_block(group, tensors, wants_input, precision_, scratch_, graph_.recomputes);
    if (block != nullptr &&
        (direct == 0 ||
         (fills_vectors(*block) && useful_part(chain[0], *block, wants_input) >= kLeastUsefulPart))) {
      std::string text = "oneDNN:";
      for (const std::string& name : block->kernels()) text += " " + name;
      stage.reads_block = block->input_block();
      stage.gives_block = block->output_block();
      stage.layer = std::move(block);
      add_stage(group, first, text.c_str(), std::move(stage));
      return blocked;
    }
  }
  if (direct == 0) return add_stage_in_blocks(chain, first);
  Stage stage;
  const std::span<const Layer> group = chain.first(direct);
  const std::vector<LayerTensors> tensors = arrays_.tensors_of(group, stage.arrays);
  stage.layer = make_direct_block(group, tensors, graph_.recomputes);
  add_stage(group, first, "direct", std::move(stage));
  return direct;
}

// True if oneDNN computes a periodic convolution, which begins the chain, faster than the hand-written
// kernels. With few input channels its weight gradient may be a matrix product, a third as fast as they are.
bool TorchNetwork::onednn_is_faster(std::span<const Layer> chain, bool wants_input) {
  Stage scratch;
  const std::span<const Layer> group = chain.first(1);
  const auto block = make_onednn_block(group, arrays_.tensors_of(group, scratch.arrays), wants_input,
                                       precision_, scratch_, false);
  if (block == nullptr) return false;
  const std::vector<std::string> names = block->kernels();
  const auto is_product = [](const std::string& name) { return name.find("gemm") != std::string::npos; };
  return std::none_of(names.begin(), names.end(), is_product) && fills_vectors(*block) &&
         useful_part(chain[0], *block, wants_input) >= kLeastUsefulPart;
}

// A stage for a border alone, or with the convolution after it. Returns as add_fused_stage().
std::size_t TorchNetwork::add_wrapped_stage(std::span<const Layer> chain, std::size_t first,
                                            KernelChoice kernels) {
  Stage stage;
  const std::size_t direct = kernels == KernelChoice::onednn ? 0 : direct_block_length(chain);
  const bool wants_input = uses_.learned[chain[0].inputs.front()];
  if (direct > 0 && (kernels == KernelChoice::direct || !onednn_is_faster(chain.subspan(1), wants_input))) {
    const std::span<const Layer> group = chain.first(direct);
    const std::vector<LayerTensors> tensors = arrays_.tensors_of(group, stage.arrays);
    stage.layer = make_direct_block(group, tensors, graph_.recomputes);
    add_stage(group, first, "direct", std::move(stage));
    return direct;
  }
  stage.reads_block = stage.gives_block = block_of_[chain[0].inputs.front()];
  stage.layer = make_wrap_layer(chain[0], stage.gives_block);
  add_stage(chain.first(1), first, "border", std::move(stage));
  return 1;
}

// The block that all inputs of a layer have; 0: none, or several.
int TorchNetwork::common_block(const Layer& layer) const {
  const int block = block_of_[layer.inputs.front()];
  const auto differs = [&](std::size_t value) { return block_of_[value] != block; };
  return std::any_of(layer.inputs.begin(), layer.inputs.end(), differs) ? 0 : block;
}

// A stage for layers that work on blocks if their inputs come in blocks. Returns as add_fused_stage().
std::size_t TorchNetwork::add_stage_in_blocks(std::span<const Layer> chain, std::size_t first) {
  const Layer& layer = chain[0];
  Stage stage;
  stage.reads_block = stage.gives_block = common_block(layer);
  if (stage.gives_block == 0) return 0;
  std::size_t length = 1;
  if (layer.kind == LayerKind::concatenate) {
    std::vector<TensorShape> inputs;
    for (const std::size_t value : layer.inputs) inputs.push_back(graph_.shape_of(value));
    const auto fills_blocks = [&](const TensorShape& x) { return x.channels % stage.gives_block == 0; };
    if (!std::all_of(inputs.begin(), inputs.end(), fills_blocks)) return 0;
    stage.layer = make_blocked_concatenation(inputs);
  } else if (layer.kind == LayerKind::add) {
    stage.layer = make_torch_layer(layer, {}, false, precision_);
  } else {
    length = blocked_tail_length(chain);
    if (length == 0) return 0;
    const std::vector<LayerTensors> tensors = arrays_.tensors_of(chain.first(length), stage.arrays);
    stage.layer = make_blocked_tail(chain.first(length), tensors, stage.gives_block, scratch_);
  }
  add_stage(chain.first(length), first, "blocks", std::move(stage));
  return length;
}

void TorchNetwork::add_stage(std::span<const Layer> group, std::size_t first, const char* text, Stage stage) {
  stage.inputs = group.front().inputs;
  stage.output = value_of(first + group.size() - 1);
  stage.fields = works_on_fields(group.front().kind);
  stage.gives_fields = stage.fields && group.back().kind != LayerKind::global_mean &&
                       group.back().kind != LayerKind::global_max;
  for (std::size_t i = 0; i < stage.inputs.size(); ++i)
    stage.wanted.push_back(uses_.learned[stage.inputs[i]] && group.front().passes_gradient(i));
  stage.text = group.front().name + (group.size() > 1 ? " .. " + group.back().name : "") + "  " + text;
  arrays_.add(stage.arrays);
  block_of_[stage.output] = stage.gives_block;
  stages_.push_back(std::move(stage));
}

}  // namespace

std::unique_ptr<Network> build_network(const ModelGraph& graph, FlatState& state, KernelChoice kernels,
                                       bool allow_gpu, Precision precision) {
  return std::make_unique<TorchNetwork>(graph, state, kernels, allow_gpu, precision);
}

std::unique_ptr<Network> make_network(Backend backend, Precision precision, const ModelGraph& graph,
                                      FlatState& state) {
  if (backend == Backend::torch && !has_torch()) needs_torch("'backend: torch'");
  const bool on_gpu = backend != Backend::onednn && compute_device() != "cpu";
  if (precision == Precision::bf16 && !on_gpu && (backend == Backend::torch || !onednn_has_bf16())) {
    throw Error(ExitCode::spec,
                fmt::format("'precision: bf16' needs a GPU or oneDNN ('backend: auto') with a processor that "
                            "multiplies such numbers, and oneDNN has {} here; use 'precision: full'",
                            onednn_instruction_set()));
  }
  if (backend == Backend::torch)
    return make_torch_network(graph, state, KernelChoice::direct, true, precision);
  if (backend == Backend::automatic)
    return make_torch_network(graph, state, KernelChoice::fastest, true, precision);
  auto network = make_torch_network(graph, state, KernelChoice::onednn, false, precision);
  const std::vector<std::string> lines = network->describe();
  const auto by_onednn = [](const std::string& line) { return line.find("oneDNN: ") != std::string::npos; };
  if (std::none_of(lines.begin(), lines.end(), by_onednn)) {
    throw Error(ExitCode::spec,
                fmt::format("'backend: onednn': oneDNN {} with {} has fast kernels for no layer of this "
                            "network; use 'backend: auto'",
                            onednn_version(), onednn_instruction_set()));
  }
  return network;
}

void set_kernel_threads(int threads, bool deterministic) {
  // The tensors of a step have the sizes of the last step's: keep their memory. Returning it and faulting it
  // in again took a third of the time.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  at::set_num_threads(threads);
  // OpenBLAS built on pthreads ignores OpenMP's setting. Looked up by name, because the system chooses
  // libtorch's BLAS.
  using SetThreads = void (*)(int);
  if (auto* set = reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(threads);
  at::globalContext().setDeterministicAlgorithms(deterministic, true);
}

int compute_threads() {
  constexpr std::int64_t kMany = 4096;
  std::atomic<int> parts = 0;  // each thread gets one
  at::parallel_for(0, kMany, 1, [&](std::int64_t, std::int64_t) { ++parts; });
  return parts;
}

void needs_torch(const std::string& what) {
  throw Error(ExitCode::system, what +
                                    " needs libtorch, and this wflow-train was built without libtorch "
                                    "(-DWFLOW_TORCH=OFF); use a build that has it");
}

}  // namespace wflow::trainer
