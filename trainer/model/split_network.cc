// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/split_network.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "trainer/model/graph_uses.h"
#include "trainer/model/split_layers.h"

namespace wflow::trainer {
namespace {

// A value, or a gradient, in the layouts that it is there in: of the own box, and of all cells.
struct InLayouts {
  at::Tensor split;
  at::Tensor whole;
  at::Tensor& in(Layout layout) { return layout == Layout::split ? split : whole; }
};

void accumulate(at::Tensor& sum, const at::Tensor& part) {
  if (part.defined()) sum = sum.defined() ? sum.add(part) : part;
}

at::Tensor floats_at(std::span<const float> values, at::IntArrayRef shape) {
  // libtorch has no tensors of constants; nothing writes to this one.
  return at::from_blob(const_cast<float*>(values.data()), shape, at::TensorOptions().dtype(at::kFloat));
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
  SplitNetwork(const ModelGraph& graph, FlatState& state, const Distribution& distribution,
               Communicator& group, KernelChoice kernels);

  using Network::forward;
  using Network::predict;

  void predict(Inputs inputs, std::int64_t samples, std::span<float> outputs) override {
    const at::NoGradGuard no_gradients;
    run(inputs, samples, outputs, [](TorchLayer& layer, const Tensors& x) { return layer.predict(x); });
  }

  void forward(Inputs inputs, std::int64_t samples, const StepKey& key, std::span<float> outputs) override {
    const at::NoGradGuard no_gradients;
    run(inputs, samples, outputs, [&](TorchLayer& layer, const Tensors& x) { return layer.forward(x, key); });
    for (const Shared& shared : statistics_) {
      for (const at::Tensor& other : shared.others) shared.first.add_(other);
      shared.first.div_(static_cast<double>(1 + shared.others.size()));
    }
    if (!is_first()) std::ranges::fill(state_.batch_statistics(), 0.0F);
  }

  void backward(std::span<const float> output_gradients, const Ready& ready) override {
    const at::NoGradGuard no_gradients;
    std::vector<InLayouts> gradients = gradients_of_outputs(output_gradients);
    for (std::size_t i = stages_.size(); i-- > 0;) {
      const Stage& stage = stages_[i];
      backward_stage(stage, gradients);
      for (const Shared& shared : stage.shared)
        for (const at::Tensor& other : shared.others) shared.first.add_(other);
      if (stage.gradients_from >= 0) ready(stage.final_from);
    }
  }

  void input_gradient(std::span<float> /*gradient*/) const override { WFLOW_CHECK(false); }
  void values_changed() override {}  // the layers read the state's arrays

  std::vector<std::string> describe() const override {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < graph_.layers.size(); ++i)
      lines.push_back(graph_.layers[i].name + "  " + stages_[i].text);
    return lines;
  }

 private:
  using Tensors = TorchLayer::Tensors;
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  // An array that several layers compute: that of the first one, and those of the others.
  struct Shared {
    at::Tensor first;
    std::vector<at::Tensor> others;
  };

  struct Stage {
    std::unique_ptr<TorchLayer> layer;
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
    std::int64_t gradients_from = -1;  // position in the exchange array; -1: no parameters
    std::int64_t gradient_floats = 0;
    std::int64_t final_from = 0;  // all gradients from here on are final after the stage
    NamedTensors gradients;
    std::vector<Shared> shared;  // gradients that are complete after this stage
  };

  struct Owner {
    std::size_t stage = 0;
    Shared array;
  };
  using Owners = std::map<std::string, Owner>;

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

  LayerTensors tensors_of(std::size_t index, Stage& stage);
  static at::Tensor own_place(const at::Tensor& all, const FlatEntry& entry, const Owners& owners);
  void add_stage(std::size_t index, KernelChoice kernels);
  bool may_overwrite_gradient(std::size_t value) const;
  void collect_shared();
  void find_final_gradients();

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
    at::Tensor& asked = values[value].in(layout);
    if (!asked.defined())
      asked = layout == Layout::whole ? gathered(value, values[value].split)
                                      : own_part(value, values[value].whole);
    return asked;
  }

  template <class Call>
  void run(Inputs inputs, std::int64_t samples, std::span<float> outputs, Call call);
  std::vector<InLayouts> gradients_of_outputs(std::span<const float> all);
  void backward_stage(const Stage& stage, std::vector<InLayouts>& gradients);
  // A value's gradient, of all layers that read it, in the layout that its own layer gives.
  at::Tensor complete_gradient(std::size_t value, InLayouts& parts);

  ModelGraph graph_;
  FlatState& state_;
  Distribution distribution_;
  Communicator& group_;
  std::vector<Box> whole_;  // of each value
  at::Tensor values_;       // these alias the state's arrays
  at::Tensor gradients_;
  at::Tensor buffers_;
  at::Tensor batch_statistics_;
  std::vector<Stage> stages_;  // one a layer
  Owners gradient_owners_;
  Owners statistic_owners_;
  std::vector<Shared> statistics_;  // those of norms that are applied several times
  std::map<std::size_t, BoxExchange> gathers_;
  const GraphUses uses_;
};

SplitNetwork::SplitNetwork(const ModelGraph& graph, FlatState& state, const Distribution& distribution,
                           Communicator& group, KernelChoice kernels)
    : graph_(graph), state_(state), distribution_(distribution), group_(group), uses_(uses_of(graph)) {
  WFLOW_CHECK(distribution.grid.ranks() == group.size());
  const auto alias = [](std::span<float> values) {
    return floats_at(values, {static_cast<std::int64_t>(values.size())});
  };
  values_ = alias(state.values());
  gradients_ = alias(state.gradients());
  buffers_ = alias(state.buffer_values());
  batch_statistics_ = alias(state.batch_statistics());
  for (std::size_t value = 0; value < value_of(graph_.layers.size()); ++value)
    whole_.push_back(Box::of(graph_.shape_of(value).extent));
  for (std::size_t i = 0; i < graph_.layers.size(); ++i) add_stage(i, kernels);
  collect_shared();
  find_final_gradients();
}

at::Tensor SplitNetwork::own_place(const at::Tensor& all, const FlatEntry& entry, const Owners& owners) {
  const at::Tensor first = all.narrow(0, entry.offset, entry.count).view(entry.spec.shape);
  return owners.contains(entry.spec.name) ? at::zeros_like(first) : first;
}

// The place in the state's arrays for the first layer that has a parameter or buffer, memory of its own for
// the others and for gradients of layers that don't learn.
LayerTensors SplitNetwork::tensors_of(std::size_t index, Stage& stage) {
  const Layer& layer = graph_.layers[index];
  const auto view = [](const at::Tensor& flat, const FlatEntry& entry) {
    return flat.narrow(0, entry.offset, entry.count).view(entry.spec.shape);
  };
  const auto share = [&](const std::string& name, const at::Tensor& tensor, Owners& owners) {
    const auto [owner, is_first] = owners.emplace(name, Owner{index, {tensor, {}}});
    if (!is_first) owner->second.array.others.push_back(tensor);
    return is_first;
  };
  LayerTensors tensors;
  for (const ParameterSpec& spec : layer.parameters) {
    const FlatEntry& entry = *state_.parameters().find(spec.name);
    if (layer.frozen) {
      tensors.parameters.push_back({view(values_, entry), at::zeros(entry.spec.shape)});
      continue;
    }
    const at::Tensor gradient = own_place(gradients_, entry, gradient_owners_);
    tensors.parameters.push_back({view(values_, entry), gradient});
    stage.gradients.emplace_back(spec.name, gradient);
    if (!share(spec.name, gradient, gradient_owners_)) continue;
    const std::int64_t begin = state_.gradients_begin() + entry.offset;
    if (stage.gradients_from < 0) stage.gradients_from = begin;
    stage.gradient_floats = begin + entry.count - stage.gradients_from;
  }
  for (const ParameterSpec& spec : layer.buffers) {
    const FlatEntry& entry = *state_.buffers().find(spec.name);
    tensors.running.push_back(view(buffers_, entry));
    tensors.statistics.push_back(own_place(batch_statistics_, entry, statistic_owners_));
    share(spec.name, tensors.statistics.back(), statistic_owners_);
  }
  return tensors;
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

void SplitNetwork::add_stage(std::size_t index, KernelChoice kernels) {
  const Layer& layer = graph_.layers[index];
  const LayerSplit& split = distribution_.layers[index];
  Stage& stage = stages_.emplace_back();
  stage.inputs = layer.inputs;
  stage.output = value_of(index);
  stage.gives = split.gives;
  for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
    stage.reads.push_back(layout_read(layer, split, k));
    stage.wanted.push_back(uses_.learned[layer.inputs[k]] && layer.passes_gradient(k));
  }
  const LayerTensors tensors = tensors_of(index, stage);
  const bool owns_input = may_overwrite_input(graph_, uses_, layer);
  if (split.reads == Layout::whole) {
    stage.counts_once = true;
    stage.text = "libtorch, on every rank";
    stage.fields = works_on_fields(layer.kind);
    stage.gives_fields =
        stage.fields && layer.kind != LayerKind::global_mean && layer.kind != LayerKind::global_max;
    stage.layer = make_torch_layer(layer, tensors, owns_input, Precision::full);
    return;
  }
  SplitLayerPlan plan = {layer, split, tensors, group_, own_box(layer.inputs.front()), own_box(stage.output)};
  plan.reads_whole = layout_of(layer.inputs.front()) == Layout::whole;
  plan.owns_input = owns_input;
  plan.owns_gradient = may_overwrite_gradient(stage.output);
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

void SplitNetwork::collect_shared() {
  for (const auto& [name, owner] : gradient_owners_)
    if (!owner.array.others.empty()) stages_[owner.stage].shared.push_back(owner.array);
  for (const auto& [name, owner] : statistic_owners_)
    if (!owner.array.others.empty()) statistics_.push_back(owner.array);
}

void SplitNetwork::find_final_gradients() {
  std::int64_t end = 0;  // of the gradients of the stages before
  for (Stage& stage : stages_) {
    stage.final_from = std::max(stage.gradients_from, end);
    if (stage.gradients_from >= 0) end = std::max(end, stage.gradients_from + stage.gradient_floats);
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

template <class Call>
void SplitNetwork::run(Inputs inputs, std::int64_t samples, std::span<float> outputs, Call call) {
  WFLOW_CHECK(inputs.size() == graph_.inputs.size());
  std::vector<InLayouts> values(uses_.readers.size());
  std::vector<int> uses = uses_.readers;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    values[i].in(layout_of(i)) = floats_at(inputs[i], sizes(samples, i, layout_of(i)));
  for (const Stage& stage : stages_) {
    Tensors x;
    for (std::size_t k = 0; k < stage.inputs.size(); ++k) {
      const std::size_t value = stage.inputs[k];
      const Layout wanted = stage.takes_whole ? Layout::whole : stage.reads[k];
      const at::Tensor& read = fetched(values, value, wanted);
      const bool reshapes = stage.fields || stage.takes_whole;
      x.push_back(reshapes ? read.reshape(sizes(samples, value, wanted, true)) : read);
      if (--uses[value] == 0) values[value] = {};
    }
    const at::Tensor y = call(*stage.layer, x);
    values[stage.output].in(stage.gives) = y.reshape(sizes(samples, stage.output, stage.gives));
  }
  std::size_t at = 0;
  for (const ModelGraph::Output& output : graph_.outputs) {
    const at::Tensor& y = values[output.value].in(layout_of(output.value));
    const auto count = static_cast<std::size_t>(y.numel());
    floats_at(outputs.subspan(at, count), y.sizes()).copy_(y);
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
    accumulate(gradients[output.value].in(layout), floats_at(all.subspan(at, count), shape));
    at += count;
  }
  return gradients;
}

at::Tensor SplitNetwork::complete_gradient(std::size_t value, InLayouts& parts) {
  const Layout own = layout_of(value);
  at::Tensor sum = std::move(parts.in(own));
  if (own == Layout::split && parts.whole.defined()) accumulate(sum, own_part(value, parts.whole));
  if (own == Layout::whole && parts.split.defined()) accumulate(sum, gathered(value, parts.split));
  parts = {};
  return sum;
}

void SplitNetwork::backward_stage(const Stage& stage, std::vector<InLayouts>& gradients) {
  if (!uses_.learned[stage.output]) {
    for (const auto& unreached : stage.gradients) unreached.second.zero_();
    return;
  }
  at::Tensor gradient = complete_gradient(stage.output, gradients[stage.output]);
  WFLOW_CHECK(gradient.defined());  // every layer leads to an output
  const std::int64_t samples = gradient.size(0);
  if (stage.gives_fields) gradient = gradient.reshape(sizes(samples, stage.output, stage.gives, true));
  const Tensors found = stage.layer->backward(gradient, stage.wanted);
  if (stage.counts_once && !is_first()) {
    for (const auto& counted_elsewhere : stage.gradients) counted_elsewhere.second.zero_();
  }
  for (std::size_t k = 0; k < stage.inputs.size(); ++k) {
    if (!stage.wanted[k]) continue;
    const std::size_t value = stage.inputs[k];
    const Layout layout = stage.reads[k];
    accumulate(gradients[value].in(layout), found[k].reshape(sizes(samples, value, layout)));
  }
}

}  // namespace

const Box& local_box(const Distribution& distribution, std::size_t value, int rank) {
  return distribution.values[value].boxes[static_cast<std::size_t>(rank)];
}

std::int64_t local_output_count(const ModelGraph& graph, const Distribution& distribution, int rank) {
  std::int64_t count = 0;
  for (const ModelGraph::Output& output : graph.outputs)
    count += graph.shape_of(output.value).channels * local_box(distribution, output.value, rank).cells();
  return count;
}

std::unique_ptr<Network> make_split_network(const ModelGraph& graph, FlatState& state,
                                            const Distribution& distribution, Communicator& group,
                                            KernelChoice kernels) {
  if (graph.learns_input)
    throw Error(ExitCode::spec,
                "ranks that share a sample can't find the gradient of a network's input: leave the grid out");
  return std::make_unique<SplitNetwork>(graph, state, distribution, group, kernels);
}

}  // namespace wflow::trainer
