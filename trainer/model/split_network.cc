// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/split_network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "trainer/model/model_graph.h"
#include "trainer/model/split_blocks.h"
#include "trainer/model/split_layers.h"

namespace wflow::trainer {
namespace {

// A value, or a gradient, in the layouts that it is there in: of the own box, in blocks or in libtorch's
// layout, and of all cells.
struct InLayouts {
  at::Tensor blocks;
  at::Tensor split;
  at::Tensor whole;
  at::Tensor& in(Layout layout) { return layout == Layout::split ? split : whole; }
};

void accumulate(at::Tensor& sum, const at::Tensor& part) {
  if (part.defined()) sum = sum.defined() ? sum.add(part) : part;
}

// The own boxes of the ranks, of a value that some layer reads in parts; null for other values.
const std::vector<Box>* boxes_of_value(const Distribution& distribution, std::size_t value) {
  if (distribution.values[value].layout == Layout::split) return &distribution.values[value].boxes;
  for (const LayoutSwitch& change : distribution.switches)
    if (change.value == value) return &change.boxes;
  return nullptr;
}

class SplitNetwork final : public Network {
 public:
  SplitNetwork(const ModelGraph& graph, FlatState& state, const Distribution& distribution, RankGroup& group,
               KernelChoice kernels);

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
    if (!is_first()) std::ranges::fill(state_.batch_statistics(), 0.0F);
  }

  void backward(std::span<const float> output_gradients, const Ready& ready) override {
    const at::NoGradGuard no_gradients;
    std::vector<InLayouts> gradients = gradients_of_outputs(output_gradients);
    StateInPass arrays = state_in(arrays_, stages_, Pass::backward);
    for (std::size_t i = stages_.size(); i-- > 0;) {
      const Stage& stage = stages_[i];
      arrays.begin();
      backward_stage(stage, gradients);
      arrays.end();
      stage.arrays.add_shared();
      if (stage.arrays.gradients_from >= 0) ready(stage.arrays.final_from);
    }
  }

  void input_gradient(std::span<float> /*gradient*/) const override { WFLOW_CHECK(false); }
  void values_changed() override {}  // the layers read the state's arrays
  void sit_out(Pass pass) override { state_in(arrays_, stages_, pass).pass_by(); }

  std::vector<std::string> describe() const override {
    std::vector<std::string> lines;
    for (const Stage& stage : stages_) lines.push_back(stage.text);
    return lines;
  }

 private:
  using Tensors = TorchLayer::Tensors;
  // A layer, or several that one block replaces.
  struct Stage {
    std::unique_ptr<TorchLayer> layer;
    BlockedStage* blocks = nullptr;  // the layer, if it works on blocks
    std::vector<Storage> stored;     // how it reads its inputs then
    std::vector<std::size_t> inputs;
    std::size_t output = 0;
    std::vector<Layout> reads;  // of each input
    Layout gives = Layout::whole;
    bool counts_once = false;  // every rank computes all of it
    bool takes_whole = false;  // split, of an input that every rank has
    bool fields = false;       // whole layers: reads tensors of five dimensions, vectors too
    bool gives_fields = false;
    std::vector<bool> wanted;
    std::string text;
    StageArrays arrays;
  };

  bool is_first() const { return group_.rank() == 0; }
  std::size_t value_of(std::size_t layer) const { return graph_.inputs.size() + layer; }
  Layout layout_of(std::size_t value) const { return distribution_.values[value].layout; }
  const Box& own_box(std::size_t value) const {
    const std::vector<Box>* boxes = boxes_of_value(distribution_, value);
    return boxes == nullptr ? whole_[value] : (*boxes)[static_cast<std::size_t>(group_.rank())];
  }

  // The sizes of a value's tensor, or of its gradient's.
  std::vector<std::int64_t> sizes(std::int64_t samples, std::size_t value, Layout layout,
                                  bool as_field = false) const {
    const TensorShape& shape = graph_.shape_of(value);
    if (layout == Layout::whole && !as_field && shape.voxels() == 1) return {samples, shape.channels};
    const auto e = layout == Layout::split ? own_box(value).extent() : shape.extent;
    return {samples, shape.channels, e[0], e[1], e[2]};
  }

  std::size_t add_stage(std::size_t index, KernelChoice kernels);
  std::size_t add_blocks(std::size_t index, Stage& stage);
  void add_layer(std::size_t index, KernelChoice kernels, Stage& stage);
  void choose_storage();
  int common_block(const Layer& layer) const;
  bool may_overwrite_gradient(std::size_t value) const;

  // All cells of a value or gradient from the boxes of all ranks.
  at::Tensor gathered(std::size_t value, const at::Tensor& own) {
    at::Tensor all = at::empty(sizes(own.size(0), value, Layout::whole, true));
    const auto [exchange, is_new] = gathers_.try_emplace(value, group_, everyone_to_everyone(value));
    exchange->second.start(own, own_box(value));
    cells_in(all, whole_[value], own_box(value)).copy_(own);
    exchange->second.finish(all, whole_[value]);
    return all.reshape(sizes(own.size(0), value, Layout::whole));
  }
  at::Tensor own_part(std::size_t value, const at::Tensor& all) const {
    return recut(all.reshape(sizes(all.size(0), value, Layout::whole, true)), whole_[value], own_box(value));
  }
  std::vector<Exchange> everyone_to_everyone(std::size_t value) const;

  // The value in this layout; the switch is made once.
  const at::Tensor& fetched(std::vector<InLayouts>& values, std::size_t value, Layout layout) {
    InLayouts& known = values[value];
    at::Tensor& asked = known.in(layout);
    if (asked.defined()) return asked;
    if (known.blocks.defined() && !known.split.defined())
      known.split = storage_[value].to_plain(known.blocks);
    if (!asked.defined())
      asked = layout == Layout::whole ? gathered(value, known.split) : own_part(value, known.whole);
    return asked;
  }
  at::Tensor fetched(std::vector<InLayouts>& values, std::size_t value, const Storage& storage) {
    if (storage == storage_[value]) return values[value].blocks;
    const at::Tensor& plain = fetched(values, value, Layout::split);
    return storage.from_plain(plain.reshape(sizes(plain.size(0), value, Layout::split, true)));
  }
  Tensors inputs_of(const Stage& stage, std::int64_t samples, std::vector<InLayouts>& values);

  template <class Call>
  void run(Inputs inputs, std::int64_t samples, std::span<float> outputs, Call call);
  std::vector<InLayouts> gradients_of_outputs(std::span<const float> all);
  void backward_stage(const Stage& stage, std::vector<InLayouts>& gradients);
  // A value's gradient, of all layers that read it, in the layout that its own layer gives.
  at::Tensor complete_gradient(std::size_t value, InLayouts& parts);

  ModelGraph graph_;
  FlatState& state_;
  StateTensors arrays_;
  Distribution distribution_;
  RankGroup& group_;
  std::vector<Box> whole_;        // of each value
  std::vector<Storage> storage_;  // of each value that is kept in blocks; of others, no block
  std::vector<Stage> stages_;
  std::shared_ptr<BlockScratch> scratch_ = std::make_shared<BlockScratch>();
  std::map<std::size_t, BoxExchange> gathers_;
  const GraphUses uses_;
};

SplitNetwork::SplitNetwork(const ModelGraph& graph, FlatState& state, const Distribution& distribution,
                           RankGroup& group, KernelChoice kernels)
    : graph_(graph),
      state_(state),
      arrays_(state, at::kCPU),
      distribution_(distribution),
      group_(group),
      uses_(uses_of(graph)) {
  WFLOW_CHECK(distribution.grid.ranks() == group.size());
  for (std::size_t value = 0; value < value_of(graph_.layers.size()); ++value)
    whole_.push_back(Box::of(graph_.shape_of(value).extent));
  storage_.resize(whole_.size());
  for (std::size_t at = 0; at < graph_.layers.size();) at += add_stage(at, kernels);
  choose_storage();
  std::vector<StageArrays*> all;
  for (Stage& stage : stages_) all.push_back(&stage.arrays);
  arrays_.finish(all);
}

// True for values with one reader, which returns a new array as their gradient.
bool SplitNetwork::may_overwrite_gradient(std::size_t value) const {
  if (uses_.readers[value] != 1) return false;
  for (const Layer& layer : graph_.layers) {
    if (std::ranges::find(layer.inputs, value) == layer.inputs.end()) continue;
    switch (layer.kind) {
      case LayerKind::convolution:
      case LayerKind::average_pool:
      case LayerKind::max_pool:
      case LayerKind::batch_norm:
      case LayerKind::group_norm:
        return true;
      default:
        return false;
    }
  }
  return false;  // an output, whose gradient is the caller's
}

// Returns the number of layers that the new stage replaces.
std::size_t SplitNetwork::add_stage(std::size_t index, KernelChoice kernels) {
  Stage stage;
  std::size_t length = kernels == KernelChoice::library ? 0 : add_blocks(index, stage);
  if (length == 0) {
    length = 1;
    add_layer(index, kernels, stage);
  }
  const Layer& layer = graph_.layers[index];
  const LayerSplit& split = distribution_.layers[index];
  stage.inputs = layer.inputs;
  stage.output = value_of(index + length - 1);
  stage.gives = distribution_.layers[index + length - 1].gives;
  for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
    stage.reads.push_back(layout_read(layer, split, k));
    stage.wanted.push_back(uses_.learned[layer.inputs[k]] && layer.passes_gradient(k));
  }
  const std::string last = length > 1 ? " .. " + graph_.layers[index + length - 1].name : "";
  stage.text = layer.name + last + "  " + stage.text;
  arrays_.add(stage.arrays);
  stages_.push_back(std::move(stage));
  return length;
}

// The channels of a block in which all inputs of a layer are kept; 0: none, or several.
int SplitNetwork::common_block(const Layer& layer) const {
  const int block = storage_[layer.inputs.front()].block;
  const auto differs = [&](std::size_t value) { return storage_[value].block != block; };
  return std::any_of(layer.inputs.begin(), layer.inputs.end(), differs) ? 0 : block;
}

std::size_t SplitNetwork::add_blocks(std::size_t index, Stage& stage) {
  BlockedGroup group = make_blocked_group({graph_, distribution_, uses_, arrays_, group_, scratch_}, index,
                                          common_block(graph_.layers[index]));
  if (!group.stage) return 0;
  stage.blocks = group.stage.get();
  stage.layer = std::move(group.stage);
  stage.arrays = std::move(group.arrays);
  stage.text = std::move(group.text);
  const std::size_t output = value_of(index + group.length - 1);
  storage_[output] = {own_box(output), own_box(output), graph_.shape_of(output).channels,
                      stage.blocks->output_block()};
  return group.length;
}

void SplitNetwork::add_layer(std::size_t index, KernelChoice kernels, Stage& stage) {
  const Layer& layer = graph_.layers[index];
  const LayerSplit& split = distribution_.layers[index];
  const std::vector<LayerTensors> tensors = arrays_.tensors_of(std::span(&layer, 1), stage.arrays);
  const bool owns_input = may_overwrite_input(graph_, uses_, layer);
  if (split.reads == Layout::whole) {
    stage.counts_once = true;
    stage.text = "libtorch, on every rank";
    stage.fields = works_on_fields(layer.kind);
    stage.gives_fields =
        stage.fields && layer.kind != LayerKind::global_mean && layer.kind != LayerKind::global_max;
    stage.layer = make_torch_layer(layer, tensors.front(), owns_input, Precision::full);
    return;
  }
  SplitLayerPlan plan = {
      layer, split, tensors.front(), group_, own_box(layer.inputs.front()), own_box(value_of(index))};
  plan.reads_whole = layout_of(layer.inputs.front()) == Layout::whole;
  plan.owns_input = owns_input;
  plan.owns_gradient = may_overwrite_gradient(value_of(index));
  plan.library = kernels == KernelChoice::library;
  stage.text = "libtorch";
  plan.kernels = &stage.text;
  stage.layer = make_split_window(plan);
  if (stage.layer) {
    stage.takes_whole = plan.reads_whole;
    return;
  }
  stage.layer = make_split_sum(plan);
  if (!stage.layer) stage.layer = make_split_cells(plan);
}

// Keeps each value in blocks in the cells that the first convolution reads, so that it need not copy them.
void SplitNetwork::choose_storage() {
  std::vector<bool> chosen(storage_.size(), false);
  for (const Stage& stage : stages_) {
    if (stage.blocks == nullptr) continue;
    Storage& input = storage_[stage.inputs.front()];
    const std::optional<Box> reads = stage.blocks->reads();
    if (!reads || chosen[stage.inputs.front()] || input.block == 0 ||
        input.block != stage.blocks->input_block() || intersection(*reads, input.own) != input.own)
      continue;
    input.frame = *reads;
    chosen[stage.inputs.front()] = true;
  }
  for (Stage& stage : stages_) {
    if (stage.blocks == nullptr) continue;
    const int block = stage.blocks->input_block();
    for (const std::size_t value : stage.inputs) {
      const Storage alone = {own_box(value), own_box(value), graph_.shape_of(value).channels, block};
      stage.stored.push_back(block != 0 && storage_[value].block == block ? storage_[value] : alone);
    }
    stage.blocks->keep(stage.stored, storage_[stage.output]);
  }
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) {
    Stage& next = stages_[i + 1];
    // No other exchange comes between the two, so that the order of messages is the same on all ranks.
    if (stages_[i].blocks != nullptr && next.blocks != nullptr &&
        next.inputs == std::vector{stages_[i].output} && next.stored.front() == storage_[stages_[i].output])
      next.blocks->follow(*stages_[i].blocks);
  }
}

std::vector<Exchange> SplitNetwork::everyone_to_everyone(std::size_t value) const {
  const std::vector<Box>& boxes = *boxes_of_value(distribution_, value);
  std::vector<Exchange> exchanges;
  for (int from = 0; from < group_.size(); ++from) {
    for (int to = 0; to < group_.size(); ++to)
      if (from != to) exchanges.push_back({from, to, boxes[static_cast<std::size_t>(from)]});
  }
  return exchanges;
}

SplitNetwork::Tensors SplitNetwork::inputs_of(const Stage& stage, std::int64_t samples,
                                              std::vector<InLayouts>& values) {
  Tensors x;
  for (std::size_t k = 0; k < stage.inputs.size(); ++k) {
    const std::size_t value = stage.inputs[k];
    if (stage.blocks != nullptr) {
      x.push_back(fetched(values, value, stage.stored[k]));
      continue;
    }
    const Layout wanted = stage.takes_whole ? Layout::whole : stage.reads[k];
    const at::Tensor& read = fetched(values, value, wanted);
    const bool reshapes = stage.fields || stage.takes_whole;
    x.push_back(reshapes ? read.reshape(sizes(samples, value, wanted, true)) : read);
  }
  return x;
}

template <class Call>
void SplitNetwork::run(Inputs inputs, std::int64_t samples, std::span<float> outputs, Call call) {
  WFLOW_CHECK(inputs.size() == graph_.inputs.size());
  std::vector<InLayouts> values(uses_.readers.size());
  std::vector<int> uses = uses_.readers;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    values[i].in(layout_of(i)) = alias_of(inputs[i], sizes(samples, i, layout_of(i)));
  StateInPass arrays = state_in(arrays_, stages_, Pass::forward);
  for (const Stage& stage : stages_) {
    arrays.begin();
    const Tensors x = inputs_of(stage, samples, values);
    for (const std::size_t value : stage.inputs)
      if (--uses[value] == 0) values[value] = {};
    const at::Tensor y = call(*stage.layer, x);
    arrays.end();
    if (stage.blocks != nullptr) {
      values[stage.output].blocks = y;
    } else {
      values[stage.output].in(stage.gives) = y.reshape(sizes(samples, stage.output, stage.gives));
    }
  }
  std::size_t at = 0;
  for (const ModelGraph::Output& output : graph_.outputs) {
    const at::Tensor& y = fetched(values, output.value, layout_of(output.value));
    const auto count = static_cast<std::size_t>(y.numel());
    alias_of(outputs.subspan(at, count), y.sizes()).copy_(y);
    at += count;
  }
  WFLOW_CHECK(at == outputs.size());
}

std::vector<InLayouts> SplitNetwork::gradients_of_outputs(std::span<const float> all) {
  const std::int64_t samples =
      static_cast<std::int64_t>(all.size()) / local_output_count(graph_, distribution_, group_.rank());
  std::vector<InLayouts> gradients(uses_.readers.size());
  std::size_t at = 0;
  for (const ModelGraph::Output& output : graph_.outputs) {
    const Layout layout = layout_of(output.value);
    const std::vector<std::int64_t> shape = sizes(samples, output.value, layout);
    const auto count = static_cast<std::size_t>(c10::multiply_integers(shape));
    accumulate(gradients[output.value].in(layout), alias_of(all.subspan(at, count), shape));
    at += count;
  }
  return gradients;
}

at::Tensor SplitNetwork::complete_gradient(std::size_t value, InLayouts& parts) {
  const Layout own = layout_of(value);
  at::Tensor sum = std::move(parts.in(own));
  if (own == Layout::split && parts.whole.defined()) accumulate(sum, own_part(value, parts.whole));
  if (own == Layout::whole && parts.split.defined()) accumulate(sum, gathered(value, parts.split));
  if (const Storage& storage = storage_[value]; storage.block != 0) {
    at::Tensor blocks = std::move(parts.blocks);
    if (sum.defined())
      accumulate(blocks, storage.from_plain(sum.reshape(sizes(sum.size(0), value, own, true))));
    sum = blocks;
  }
  parts = {};
  return sum;
}

void SplitNetwork::backward_stage(const Stage& stage, std::vector<InLayouts>& gradients) {
  if (!uses_.learned[stage.output]) {
    for (const auto& unreached : stage.arrays.gradients) unreached.second.zero_();
    return;
  }
  at::Tensor gradient = complete_gradient(stage.output, gradients[stage.output]);
  WFLOW_CHECK(gradient.defined());  // every layer leads to an output
  const std::int64_t samples = gradient.size(0);
  if (stage.gives_fields) gradient = gradient.reshape(sizes(samples, stage.output, stage.gives, true));
  const Tensors found = stage.layer->backward(gradient, stage.wanted);
  if (stage.counts_once && !is_first()) {
    for (const auto& counted_elsewhere : stage.arrays.gradients) counted_elsewhere.second.zero_();
  }
  for (std::size_t k = 0; k < stage.inputs.size(); ++k) {
    if (!stage.wanted[k]) continue;
    const std::size_t value = stage.inputs[k];
    if (stage.blocks != nullptr && stage.stored[k] == storage_[value]) {
      accumulate(gradients[value].blocks, found[k]);
      continue;
    }
    const Layout layout = stage.reads[k];
    const at::Tensor part = stage.blocks != nullptr ? stage.stored[k].to_plain(found[k]) : found[k];
    accumulate(gradients[value].in(layout), part.reshape(sizes(samples, value, layout)));
  }
}

}  // namespace

std::unique_ptr<Network> make_split_network(const ModelGraph& graph, FlatState& state,
                                            const Distribution& distribution, RankGroup& group,
                                            KernelChoice kernels) {
  if (graph.learns_input)
    throw Error(ExitCode::spec,
                "ranks that share a sample can't find the gradient of a network's input: leave the grid out");
  return std::make_unique<SplitNetwork>(graph, state, distribution, group, kernels);
}

}  // namespace wflow::trainer
