// SPDX-License-Identifier: Apache-2.0
// The layers of split_network.h that work on oneDNN's blocked layout, as onednn_block.h does for one rank: a
// convolution with the norm, activation and pool after it, and the layers between such groups. A value is
// kept in the box that the next convolution reads: a layer writes its cells into the middle, and the halo
// arrives around them. Every call is one of all ranks of the group. To be included only by the torch
// translation units of this folder.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/model/distribution.h"
#include "trainer/model/model_graph.h"
#include "trainer/model/onednn_block.h"
#include "trainer/model/state_tensors.h"
#include "trainer/parallel/rank_group.h"

namespace wflow::trainer {

// How a rank keeps a value that is split, or its gradient: a tensor with the cells `frame`, of which the
// rank's own have the value. Those around them are a halo, or have any content.
// [samples, C / block, d, h, w, block]; block 0: [samples, C, d, h, w].
struct Storage {
  Box own;
  Box frame;
  std::int64_t channels = 0;
  int block = 0;
  bool operator==(const Storage&) const = default;

  std::vector<std::int64_t> sizes(std::int64_t samples) const;
  at::Tensor own_cells(const at::Tensor& stored) const;  // a view
  // A tensor of this storage with these own cells, which it may be.
  at::Tensor store(const at::Tensor& own_cells) const;
  // From and to own cells in libtorch's layout.
  at::Tensor to_plain(const at::Tensor& stored) const;
  at::Tensor from_plain(const at::Tensor& cells) const;
};

// A group of layers. Inputs, output and gradients are tensors as keep() says.
class BlockedStage : public TorchLayer {
 public:
  virtual int input_block() const = 0;
  virtual int output_block() const = 0;
  // The cells in which its input would best be kept; nothing if that does not matter.
  virtual std::optional<Box> reads() const { return std::nullopt; }
  // The stage before, whose output is the only input: it calls this one as soon as the cells are there that
  // other ranks read. After keep() of both.
  virtual void follow(BlockedStage& /*before*/) {}
  // As OnednnBlock::compute_first(). False: it never calls `ready`.
  virtual bool compute_first(const OutputEdges& /*edges*/,
                             const std::function<void(const at::Tensor&)>& /*ready*/) {
    return false;
  }
  // To be called once, before the first step.
  virtual void keep(const std::vector<Storage>& inputs, const Storage& output) = 0;
};

// All stages of a network share these.
struct BlockedPlan {
  const ModelGraph& graph;
  const Distribution& distribution;
  const GraphUses& uses;
  const StateTensors& state;
  RankGroup& group;
  std::shared_ptr<BlockScratch> scratch;
};

struct BlockedGroup {
  std::unique_ptr<BlockedStage> stage;  // null: these layers do not work on blocks
  std::size_t length = 0;               // layers that it replaces
  StageArrays arrays;
  std::string text;
};

// The group that begins with this layer, whose inputs are in blocks of `block` channels; 0: in libtorch's
// layout, or in blocks of different sizes. All ranks get the same answer.
BlockedGroup make_blocked_group(const BlockedPlan& plan, std::size_t layer, int block);

}  // namespace wflow::trainer
