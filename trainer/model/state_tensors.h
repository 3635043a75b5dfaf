// SPDX-License-Identifier: Apache-2.0
// The arrays of a state as tensors, layer by layer, for networks that execute a graph in stages.
// To be included only by the torch translation units of this folder.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/model/flat_state.h"
#include "trainer/model/network.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {

// A tensor with these values, which it aliases.
at::Tensor alias_of(std::span<const float> values, at::IntArrayRef shape);

// The arrays that a stage, one layer or several, computes besides its output.
struct StageArrays {
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  // Adds up the gradients that several stages compute, if this is the last of them in the backward pass.
  void add_shared() const;

  std::int64_t gradients_from = -1;  // position in the exchange array; -1: no parameters
  std::int64_t gradient_floats = 0;
  // All gradients from here on in the exchange array are final after the stage: those of layers with shared
  // weights, and of networks that are a part of the state's, are in another order than the stages.
  std::int64_t final_from = 0;
  std::vector<std::size_t> weights;  // that its layers read: numbers in the layout of the state
  NamedTensors gradients;            // that its layers compute
  NamedTensors statistics;           // of its norms

 private:
  friend class StateTensors;
  // An array that several layers compute: that of the first one, and those of the others.
  struct Shared {
    at::Tensor first;
    std::vector<at::Tensor> others;
    void add() const;
  };
  std::vector<Shared> shared_;  // gradients that are complete after this stage
};

// The weights and gradients of a network's stages where each rank has a share: the weights of the next stage
// travel while a stage is computed.
class StateInPass {
 public:
  // `stages`: in the order in which the pass comes to them. `state`: null where all is there.
  StateInPass(StateOnUse* state, std::vector<const StageArrays*> stages, Network::Pass pass);
  // Before a stage, the next in order, is computed.
  void begin();
  // After it.
  void end();
  // In place of begin() and end() for all stages.
  void pass_by();

 private:
  const std::vector<std::size_t>* of_next() const;

  StateOnUse* state_;
  Network::Pass pass_;
  std::vector<const StageArrays*> stages_;
  std::size_t at_ = 0;
};

// On a processor the tensors alias the state's arrays; on a GPU they are copies of them. The state must
// outlive this object.
class StateTensors {
 public:
  StateTensors(FlatState& state, at::Device device);

  // The tensors of these layers, and what they compute. The place in the state's arrays is that of the first
  // layer with a parameter or buffer; the others, and layers that do not learn, get memory of their own.
  std::vector<LayerTensors> tensors_of(std::span<const Layer> layers, StageArrays& arrays) const;
  // To be called for each stage, in order, with what tensors_of() has found for it.
  void add(const StageArrays& arrays);
  // To be called once, with the arrays of all stages in the order of add().
  void finish(std::span<StageArrays* const> stages);

  StateOnUse* on_use() const { return state_.on_use(); }

  // The mean of the statistics that several norms compute for one buffer. Copies them to the state.
  void average_statistics() const;
  // Copies a stage's gradients to the state.
  void download_gradients(const StageArrays& arrays) const;
  // Copies values and buffers from the state.
  void upload() const;

 private:
  // Each array that a layer computes, by its name.
  struct Owner {
    std::size_t stage = 0;
    StageArrays::Shared array;
  };
  using Owners = std::map<std::string, Owner>;
  at::Tensor unread_gradient(const FlatEntry& entry) const;
  static at::Tensor own_place(const at::Tensor& all, const FlatEntry& entry, const Owners& owners);
  void share(const StageArrays::NamedTensors& computed, Owners& owners) const;

  FlatState& state_;
  bool on_cpu_;
  at::Tensor values_;
  at::Tensor gradients_;
  at::Tensor buffers_;
  at::Tensor statistics_;
  std::size_t stages_ = 0;
  Owners gradient_owners_;
  Owners statistic_owners_;
  std::vector<StageArrays::Shared> shared_statistics_;  // those of norms that are applied several times
};

template <class Stage>
StateInPass state_in(const StateTensors& tensors, const std::vector<Stage>& stages, Network::Pass pass) {
  std::vector<const StageArrays*> order;
  for (const Stage& stage : stages) order.push_back(&stage.arrays);
  if (pass == Network::Pass::backward) std::reverse(order.begin(), order.end());
  return {tensors.on_use(), std::move(order), pass};
}

}  // namespace wflow::trainer
