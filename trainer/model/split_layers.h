// SPDX-License-Identifier: Apache-2.0
// The layers of split_network.h: of fields of which this rank has a box, [samples, C, d, h, w]. Every call is
// one of all ranks of the group. split_blocks.h has those on oneDNN's blocked layout.
// To be included only by the torch translation units of this folder.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/model/distribution.h"
#include "trainer/model/torch_layers.h"
#include "trainer/parallel/rank_group.h"

namespace wflow::trainer {

// `box` of a tensor that has the cells `frame`; a view. The box lies in the frame, which may begin below 0.
at::Tensor cells_in(const at::Tensor& tensor, const Box& frame, const Box& box);
// The cells `box` of a tensor with the cells `frame`; 0 beyond the frame.
at::Tensor recut(const at::Tensor& tensor, const Box& frame, const Box& box);
at::Tensor zero_field(std::int64_t samples, std::int64_t channels, const Box& box);

// Exchanges of one value's cells, again and again. Tensors have the cells at the axes 2 to 4.
class BoxExchange {
 public:
  BoxExchange(RankGroup& group, const std::vector<Exchange>& all);
  // Starts to send cells of `from`, a tensor with the cells `frame`, and to receive.
  void start(const at::Tensor& from, const Box& frame);
  // Writes what arrives into `to`, or adds it.
  void finish(const at::Tensor& to, const Box& frame);
  void finish_adding(const at::Tensor& to, const Box& frame);

 private:
  // Calls `take(place, cells)` for each box that arrives, in order of the senders.
  template <class Take>
  void finish_with(const Take& take);

  RankGroup& group_;
  std::vector<Exchange> sent_;
  std::vector<Exchange> received_;
  std::vector<at::Tensor> leaving_;
  std::vector<at::Tensor> arriving_;
  RankGroup::ExchangeTicket ticket_ = {};
};

struct SplitLayerPlan {
  const Layer& layer;
  const LayerSplit& split;
  LayerTensors tensors;
  RankGroup& group;
  Box in;   // this rank's cells of the input
  Box out;  // and of the output
  // The layer reads the whole input, which every rank has, and finds the gradient of the cells `in`.
  bool reads_whole = false;
  bool owns_input = false;         // as in make_torch_layer()
  bool owns_gradient = false;      // nothing else reads the gradient of the output: it may be overwritten
  bool library = false;            // no kernels but those of libtorch
  std::string* kernels = nullptr;  // gets the names of others
};

// split_windows.cc: layers whose output cells read other cells than their own; null for other kinds.
std::unique_ptr<TorchLayer> make_split_window(const SplitLayerPlan& plan);
// split_wrap.cc: the border of a periodic convolution.
std::unique_ptr<TorchLayer> make_split_wrap(const SplitLayerPlan& plan);
// split_sums.cc: norms, global means and film layers, which sum over the group; null for other kinds.
std::unique_ptr<TorchLayer> make_split_sum(const SplitLayerPlan& plan);
// split_cells.cc: the others.
std::unique_ptr<TorchLayer> make_split_cells(const SplitLayerPlan& plan);

}  // namespace wflow::trainer
