// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "trainer/model/network.h"
#include "trainer/model/state_tensors.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

std::span<float> values_of(const at::Tensor& x) {
  return {x.data_ptr<float>(), static_cast<std::size_t>(x.numel())};
}

// The cells [begin, begin + count) of a field along an axis, for all samples and channels.
struct Slab {
  at::Tensor field;  // contiguous
  std::int64_t axis = 2;
  std::int64_t begin = 0;
  std::int64_t count = 0;

  // Calls call(cells of the slab, cells of `other`, number) for each run of neighbours in memory. `other`
  // begins at its own cell `at`.
  template <class Call>
  void for_runs_with(const at::Tensor& other, std::int64_t at, const Call& call) const {
    std::int64_t outer = 1;
    std::int64_t inner = 1;
    for (std::int64_t a = 0; a < axis; ++a) outer *= field.size(a);
    for (std::int64_t a = axis + 1; a < field.dim(); ++a) inner *= field.size(a);
    float* own = field.data_ptr<float>() + begin * inner;
    float* others = other.data_ptr<float>() + at * inner;
    const std::int64_t step = field.size(axis) * inner;
    const std::int64_t other_step = other.size(axis) * inner;
    at::parallel_for(0, outer, 1, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; ++i) call(own + i * step, others + i * other_step, count * inner);
    });
  }
  void copy_to(const at::Tensor& other, std::int64_t at) const {
    for_runs_with(other, at,
                  [](const float* own, float* others, std::int64_t n) { std::copy_n(own, n, others); });
  }
  void copy_from(const at::Tensor& other, std::int64_t at) const {
    for_runs_with(other, at,
                  [](float* own, const float* others, std::int64_t n) { std::copy_n(others, n, own); });
  }
  void add_from(const at::Tensor& other, std::int64_t at) const {
    for_runs_with(other, at, [](float* own, const float* others, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) own[i] += others[i];
    });
  }
};

ModelGraph tile_graph(const TiledChain& chain, bool learns_input) {
  ModelGraph graph = chain.graph;
  graph.learns_input = learns_input;
  return graph;
}

class TiledBlock final : public UnaryLayer {
 public:
  TiledBlock(const TiledChain& chain, std::span<const LayerTensors> tensors, bool learns_input,
             KernelChoice kernels, Precision precision)
      : chain_(chain),
        tensors_(tensors.begin(), tensors.end()),
        axis_(static_cast<std::int64_t>(chain.axis) + 2),
        graph_(tile_graph(chain, learns_input)),
        state_(graph_),
        network_(make_torch_network(graph_, state_, kernels, false, precision)),
        sums_(state_.gradients().size()) {}

  at::Tensor predict(const at::Tensor& x) override {
    load_weights();
    const at::Tensor from = x.contiguous();
    const at::Tensor y = empty_field(graph_.layers.back().output, output_cells(), from);
    const at::Tensor in = empty_field(graph_.input(), input_cells(), from);
    const at::Tensor out = empty_field(graph_.layers.back().output, tile_cells(), from);
    for (const TiledChain::Tile& tile : chain_.tiles) {
      slab(from, tile.input, input_cells()).copy_to(in, 0);
      network_->predict(values_of(in), from.size(0), values_of(out));
      own(y, tile).copy_from(out, tile.own_begin - tile.output);
    }
    return y;
  }

  // Keeps the input alone.
  at::Tensor forward(const at::Tensor& x, const StepKey& key) override {
    key_ = key;
    input_ = x.contiguous();
    return predict(input_);
  }

  at::Tensor backward(const at::Tensor& gradient, bool wants_input) override {
    const at::Tensor dy = gradient.contiguous();
    const at::Tensor in = empty_field(graph_.input(), input_cells(), input_);
    const at::Tensor out = empty_field(graph_.layers.back().output, tile_cells(), input_);
    at::Tensor dx = wants_input ? at::zeros_like(input_) : at::Tensor();
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    for (const TiledChain::Tile& tile : chain_.tiles) {
      slab(input_, tile.input, input_cells()).copy_to(in, 0);
      network_->forward(values_of(in), input_.size(0), key_, values_of(out));
      out.zero_();
      own(dy, tile).copy_to(out, tile.own_begin - tile.output);
      network_->backward(values_of(out), [](std::int64_t) {});
      const std::span<const float> found = state_.gradients();
      for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += found[i];
      if (!wants_input) continue;
      network_->input_gradient(values_of(in));
      slab(dx, tile.input, input_cells()).add_from(in, 0);
    }
    store_gradients();
    input_.reset();
    return dx;
  }

 private:
  std::int64_t input_cells() const { return graph_.input().extent[chain_.axis]; }  // of a tile
  std::int64_t tile_cells() const { return graph_.layers.back().output.extent[chain_.axis]; }
  std::int64_t output_cells() const { return chain_.tiles.back().own_end; }

  at::Tensor empty_field(TensorShape shape, std::int64_t cells, const at::Tensor& like) const {
    shape.extent[chain_.axis] = cells;
    return at::empty({like.size(0), shape.channels, shape.extent[0], shape.extent[1], shape.extent[2]},
                     like.options());
  }
  Slab slab(const at::Tensor& field, std::int64_t begin, std::int64_t count) const {
    return {field, axis_, begin, count};
  }
  Slab own(const at::Tensor& output, const TiledChain::Tile& tile) const {
    return slab(output, tile.own_begin, tile.own_end - tile.own_begin);
  }

  template <class Call>
  void for_parameters(const Call& call) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const std::vector<ParameterSpec>& specs = graph_.layers[i].parameters;
      for (std::size_t k = 0; k < specs.size(); ++k)
        call(*state_.parameters().find(specs[k].name), tensors_[i].parameters[k]);
    }
  }
  void load_weights() {
    for_parameters([&](const FlatEntry& entry, const ParameterTensors& tensors) {
      std::ranges::copy(values_of(tensors.value), state_.value(entry).begin());
    });
    network_->values_changed();
  }
  void store_gradients() {
    for_parameters([&](const FlatEntry& entry, const ParameterTensors& tensors) {
      if (!tensors.learns) return;
      const auto at = static_cast<std::size_t>(entry.offset);
      std::copy_n(sums_.begin() + static_cast<std::ptrdiff_t>(at), entry.count,
                  values_of(tensors.gradient).begin());
    });
  }

  const TiledChain chain_;
  const std::vector<LayerTensors> tensors_;
  const std::int64_t axis_;
  const ModelGraph graph_;
  FlatState state_;
  const std::unique_ptr<Network> network_;
  std::vector<float> sums_;  // of the gradients, over tiles
  StepKey key_;
  at::Tensor input_;
};

}  // namespace

std::unique_ptr<TorchLayer> make_tiled_block(const TiledChain& chain, std::span<const LayerTensors> tensors,
                                             bool learns_input, KernelChoice kernels, Precision precision) {
  return std::make_unique<TiledBlock>(chain, tensors, learns_input, kernels, precision);
}

}  // namespace wflow::trainer
