// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/split_blocks.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/error.h"
#include "trainer/model/distribution.h"
#include "trainer/model/split_layers.h"

namespace wflow::trainer {

std::vector<std::int64_t> Storage::sizes(std::int64_t samples) const {
  const auto e = frame.extent();
  if (block == 0) return {samples, channels, e[0], e[1], e[2]};
  return {samples, (channels + block - 1) / block, e[0], e[1], e[2], block};
}

at::Tensor Storage::own_cells(const at::Tensor& stored) const {
  return frame == own ? stored : cells_in(stored, frame, own);
}

at::Tensor Storage::store(const at::Tensor& own_cells) const {
  if (frame == own) return own_cells;
  at::Tensor stored = at::empty(sizes(own_cells.size(0)));
  this->own_cells(stored).copy_(own_cells);
  return stored;
}

at::Tensor Storage::to_plain(const at::Tensor& stored) const {
  if (block == 0) return stored;
  const auto e = own.extent();
  const std::int64_t samples = stored.size(0);
  return own_cells(stored)
      .permute({0, 1, 5, 2, 3, 4})
      .reshape({samples, stored.size(1) * block, e[0], e[1], e[2]})
      .narrow(1, 0, channels)
      .contiguous();
}

at::Tensor Storage::from_plain(const at::Tensor& cells) const {
  if (block == 0) return cells;
  const std::int64_t samples = cells.size(0);
  const auto e = own.extent();
  at::Tensor stored = at::empty(sizes(samples));
  at::Tensor blocks = cells;
  if (channels % block != 0) {  // channels that only fill the last block are 0
    blocks = at::zeros({samples, stored.size(1) * block, e[0], e[1], e[2]});
    blocks.narrow(1, 0, channels).copy_(cells);
  }
  own_cells(stored).copy_(
      blocks.reshape({samples, stored.size(1), block, e[0], e[1], e[2]}).permute({0, 1, 3, 4, 5, 2}));
  return stored;
}

namespace {

BoxSize size_of(const Box& box) {
  return {box.axes[0].count(), box.axes[1].count(), box.axes[2].count()};
}

void store_in(OnednnBlock& block, const Storage& output) {
  if (output.frame == output.own) return;
  const auto first = [&](std::size_t axis) {
    return output.own.axes[axis].begin - output.frame.axes[axis].begin;
  };
  block.store_in(size_of(output.frame), {first(0), first(1), first(2)});
}

// Layers that a block computes of one input.
class BlockStage : public BlockedStage {
 public:
  int output_block() const override { return block_->output_block(); }
  void keep(const std::vector<Storage>& inputs, const Storage& output) override {
    input_ = inputs.front();
    output_ = output;
    store_in(*block_, output);
  }

  bool compute_first(const OutputEdges& edges, const std::function<void(const at::Tensor&)>& ready) override {
    block_->compute_first(edges, ready);
    return true;
  }

  at::Tensor predict(const Tensors& inputs) override {
    return block_->predict(Tensors{cells_read(inputs.front())}).view(output_.sizes(inputs.front().size(0)));
  }
  at::Tensor forward(const Tensors& inputs, const StepKey& key) override {
    samples_ = inputs.front().size(0);
    return block_->forward(Tensors{cells_read(inputs.front())}, key).view(output_.sizes(samples_));
  }
  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    Tensors found = block_->backward(gradient, wanted);
    if (wanted.front()) found.front() = input_gradient(found.front());
    return found;
  }

 protected:
  // The input as the block reads it.
  virtual at::Tensor cells_read(const at::Tensor& stored) = 0;
  // The gradient of the input as it is stored, from the block's.
  virtual at::Tensor input_gradient(const at::Tensor& dx) = 0;

  Storage input_with(const Box& frame) const { return {frame, frame, input_.channels, input_.block}; }

  std::unique_ptr<OnednnBlock> block_;
  Storage input_;
  Storage output_;
  std::int64_t samples_ = 0;
};

// A convolution of the cells `needed`, and layers after it that read no other cells than their own. The rank
// finds the gradients of all cells that it has read and sends those of the halo back, where they are added.
class SplitBlock final : public BlockStage {
 public:
  SplitBlock(RankGroup& group, const std::vector<Exchange>& halo, const Box& needed)
      : needed_(needed), halo_(group, halo), back_(group, sent_back(halo)) {
    for (const Exchange& exchange : halo)
      if (exchange.from == group.rank()) sent_.push_back(exchange.box);
  }

  // The block calls send_back(), which needs this object.
  void compute_with(std::unique_ptr<OnednnBlock> block) { block_ = std::move(block); }
  void send_back(const at::Tensor& dx) { back_.start(in_needed_cells(dx), needed_); }

  int input_block() const override { return block_->input_block(); }
  std::optional<Box> reads() const override { return needed_; }

  void follow(BlockedStage& before) override {
    if (sent_.empty()) return;
    before.compute_first(edges(), [this](const at::Tensor& stored) {
      const std::int64_t samples = stored.numel() / c10::multiply_integers(input_.sizes(1));
      halo_.start(stored.view(input_.sizes(samples)), input_.frame);
      begun_ = true;
    });
  }

 private:
  // The planes that have what this rank sends; of boxes that have all planes, the rows.
  OutputEdges edges() const {
    OutputEdges edges;
    const auto cover = [](const Range& box, const Range& own, std::array<std::int64_t, 2>& ends) {
      if (box.count() == own.count()) return false;
      if (box.begin - own.begin <= own.end - box.end) {
        ends[0] = std::max(ends[0], box.end - own.begin);
      } else {
        ends[1] = std::max(ends[1], own.end - box.begin);
      }
      return true;
    };
    const Box& own = input_.own;
    for (const Box& box : sent_) {
      if (cover(box.axes[0], own.axes[0], edges.planes) || cover(box.axes[1], own.axes[1], edges.rows))
        continue;
      edges.planes[0] = own.axes[0].count();
    }
    return edges;
  }

  at::Tensor in_needed_cells(const at::Tensor& dx) const {
    return dx.view(input_with(needed_).sizes(samples_));
  }

  at::Tensor cells_read(const at::Tensor& stored) override {
    if (!std::exchange(begun_, false)) halo_.start(stored, input_.frame);
    if (input_.frame == needed_) {
      halo_.finish(stored, needed_);
      return stored;
    }
    const at::Tensor cells = at::empty(input_with(needed_).sizes(stored.size(0)));
    const Box own = intersection(input_.own, needed_);
    if (!own.empty()) cells_in(cells, needed_, own).copy_(cells_in(stored, input_.frame, own));
    halo_.finish(cells, needed_);
    return cells;
  }

  at::Tensor input_gradient(const at::Tensor& found) override {
    const at::Tensor dx = in_needed_cells(found);
    if (input_.frame == needed_) {
      back_.finish_adding(dx, needed_);
      return dx;
    }
    const at::Tensor stored = at::zeros(input_.sizes(samples_));
    const Box own = intersection(input_.own, needed_);
    if (!own.empty()) cells_in(stored, input_.frame, own).copy_(cells_in(dx, needed_, own));
    back_.finish_adding(stored, input_.frame);
    return stored;
  }

  Box needed_;
  std::vector<Box> sent_;
  bool begun_ = false;  // the stage before has started the exchange
  BoxExchange halo_;
  BoxExchange back_;
};

// Norm, activation and pool of cells that this rank has.
class SplitTail final : public BlockStage {
 public:
  explicit SplitTail(std::unique_ptr<OnednnBlock> block) { block_ = std::move(block); }

  int input_block() const override { return block_->output_block(); }

 private:
  at::Tensor cells_read(const at::Tensor& stored) override { return input_.own_cells(stored).contiguous(); }
  at::Tensor input_gradient(const at::Tensor& dx) override {
    return input_.store(dx.view(input_with(input_.own).sizes(samples_)));
  }
};

// Sums and joined channels of fields in blocks.
class SplitJoin final : public BlockedStage {
 public:
  SplitJoin(bool concatenates, int block) : concatenates_(concatenates), block_(block) {}

  int input_block() const override { return block_; }
  int output_block() const override { return block_; }
  void keep(const std::vector<Storage>& inputs, const Storage& output) override {
    inputs_ = inputs;
    output_ = output;
  }

  at::Tensor predict(const Tensors& inputs) override {
    Tensors own;
    for (std::size_t i = 0; i < inputs.size(); ++i) own.push_back(inputs_[i].own_cells(inputs[i]));
    at::Tensor stored = at::empty(output_.sizes(inputs.front().size(0)));
    at::Tensor cells = output_.own_cells(stored);
    if (concatenates_) {
      at::cat_out(cells, own, 1);
      return stored;
    }
    cells.copy_(own.front());
    for (std::size_t i = 1; i < own.size(); ++i) cells.add_(own[i]);
    return stored;
  }
  at::Tensor forward(const Tensors& inputs, const StepKey&) override { return predict(inputs); }

  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    const at::Tensor cells = output_.own_cells(gradient);
    Tensors found(inputs_.size());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::int64_t blocks = inputs_[i].sizes(1)[1];
      const at::Tensor part = concatenates_ ? cells.narrow(1, first, blocks) : cells;
      first += blocks;
      if (wanted[i]) found[i] = inputs_[i].store(part.contiguous());
    }
    return found;
  }

 private:
  bool concatenates_;
  int block_;
  std::vector<Storage> inputs_;
  Storage output_;
};

const std::vector<Box>& boxes_of(const BlockedPlan& plan, std::size_t value) {
  return plan.distribution.values[value].boxes;
}

// A convolution with the sizes of this rank's part: it reads `inputs` and computes `outputs`, and windows
// that end outside the field have padding there.
Layer local_convolution(const Layer& whole, const Box& inputs, const Box& outputs) {
  Layer layer = whole;
  layer.input.extent = inputs.extent();
  layer.output.extent = outputs.extent();
  if (layer.kind == LayerKind::transposed_convolution) return layer;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const Range& in = inputs.axes[axis];
    const Range& out = outputs.axes[axis];
    layer.pad_low[axis] = in.begin - (out.begin * whole.stride[axis] - whole.pad_low[axis]);
    layer.pad_high[axis] =
        (out.end - 1) * whole.stride[axis] - whole.pad_low[axis] + whole.reach(axis) - in.end;
  }
  return layer;
}

std::vector<Layer> local_layers(const BlockedPlan& plan, std::span<const Layer> group, std::size_t first,
                                const Box& inputs) {
  const auto rank = static_cast<std::size_t>(plan.group.rank());
  std::vector<Layer> local;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const Box& outputs = boxes_of(plan, plan.graph.inputs.size() + first + i)[rank];
    const bool convolves =
        group[i].kind == LayerKind::convolution || group[i].kind == LayerKind::transposed_convolution;
    local.push_back(convolves ? local_convolution(group[i], inputs, outputs) : group[i]);
    if (convolves) continue;
    local.back().input.extent = i == 0 ? inputs.extent() : local[i - 1].output.extent;
    local.back().output.extent = outputs.extent();
  }
  return local;
}

BlockPart part_of(const BlockedPlan& plan, std::span<const Layer> group) {
  BlockPart part;
  part.add = [&communicator = plan.group](std::span<double> numbers) { communicator.sum_by_rank(numbers); };
  for (const Layer& layer : group) {
    if (layer.kind == LayerKind::batch_norm || layer.kind == LayerKind::group_norm)
      part.norm_voxels = layer.input.voxels();
  }
  return part;
}

// True if all ranks pass the same numbers, and the last is not 0.
bool all_agree(RankGroup& group, const std::array<int, 2>& numbers) {
  const std::vector<int> all = values_of_ranks<int>(group, numbers);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != numbers[i % 2]) return false;
  return numbers[1] != 0;
}

BlockedGroup convolution_group(const BlockedPlan& plan, std::size_t first) {
  BlockedGroup found;
  const std::span<const Layer> chain = own_chain(plan.graph, plan.uses, plan.distribution, first);
  const std::size_t length = onednn_block_length(chain);
  if (length == 0) return found;
  const std::size_t input = chain.front().inputs.front();
  const LayerSplit& split = plan.distribution.layers[first];
  const bool reads_nothing =
      std::any_of(split.needed.begin(), split.needed.end(), [](const Box& box) { return box.empty(); });
  if (plan.distribution.values[input].layout != Layout::split || reads_nothing) return found;

  const std::span<const Layer> group = chain.first(length);
  const Box& needed = split.needed[static_cast<std::size_t>(plan.group.rank())];
  const std::vector<Layer> local = local_layers(plan, group, first, needed);
  auto stage = std::make_unique<SplitBlock>(plan.group, split.halo, needed);
  BlockPart part = part_of(plan, group);
  part.send = [to = stage.get()](const at::Tensor& dx) { to->send_back(dx); };
  auto block = make_onednn_block(local, plan.state.tensors_of(group, found.arrays), plan.uses.learned[input],
                                 Precision::full, plan.scratch, plan.graph.recomputes, std::move(part));
  // A rank whose part has another shape might have other kernels, or none.
  const std::array<int, 2> blocks = {block ? block->input_block() : 0, block ? block->output_block() : 0};
  if (!all_agree(plan.group, blocks)) return {};
  found.text = "oneDNN:";
  for (const std::string& name : block->kernels()) found.text += " " + name;
  stage->compute_with(std::move(block));
  found.stage = std::move(stage);
  found.length = length;
  return found;
}

BlockedGroup join_group(const BlockedPlan& plan, const Layer& layer, int block) {
  BlockedGroup found;
  const bool concatenates = layer.kind == LayerKind::concatenate;
  for (const std::size_t input : layer.inputs) {
    if (concatenates && plan.graph.shape_of(input).channels % block != 0) return found;
  }
  found.stage = std::make_unique<SplitJoin>(concatenates, block);
  found.length = 1;
  found.text = "blocks";
  return found;
}

BlockedGroup tail_group(const BlockedPlan& plan, std::size_t first, int block) {
  BlockedGroup found;
  const std::span<const Layer> chain = own_chain(plan.graph, plan.uses, plan.distribution, first);
  found.length = blocked_tail_length(chain);
  if (found.length == 0) return found;
  const std::span<const Layer> group = chain.first(found.length);
  const Box& own = boxes_of(plan, group.front().inputs.front())[static_cast<std::size_t>(plan.group.rank())];
  const std::vector<Layer> local = local_layers(plan, group, first, own);
  found.stage = std::make_unique<SplitTail>(make_blocked_tail(
      local, plan.state.tensors_of(group, found.arrays), block, plan.scratch, part_of(plan, group)));
  found.text = "blocks";
  return found;
}

}  // namespace

BlockedGroup make_blocked_group(const BlockedPlan& plan, std::size_t layer, int block) {
  if (!computes_parts(plan.distribution.layers[layer])) return {};
  BlockedGroup convolution = convolution_group(plan, layer);
  if (convolution.stage || block == 0) return convolution;
  const Layer& first = plan.graph.layers[layer];
  if (first.kind == LayerKind::add || first.kind == LayerKind::concatenate)
    return join_group(plan, first, block);
  return tail_group(plan, layer, block);
}

}  // namespace wflow::trainer
