// SPDX-License-Identifier: Apache-2.0
// The updates that a step of a training makes, one after the other on the same batch (`alternate`). Usually
// it is one, with the losses of all heads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/network.h"
#include "trainer/training/heads.h"
#include "trainer/training/session.h"

namespace wflow::trainer {

// The penalty on the gradient of a score by a value (Gulrajani et al. 2017, equation 3; with the norm 0 on
// real samples Mescheder et al. 2018, equation 9).
//
// Its gradient by the weights is the derivative of the score's gradient along the direction u of the penalty:
// a central difference of two ordinary passes at the value plus and minus h u, so that no layer needs a
// second derivative. The error is of order h^2, and of the rounding over h.
struct UpdatePenalty {
  GradientPenalty config;
  std::unique_ptr<Network> network;  // from the value to the score
  std::optional<std::size_t> input;  // the value is an input of the training's network; else the last output
                                     // of the update's
  std::size_t values = 0;            // of a sample, in the value
  std::size_t scores = 0;            // and in the score
};

struct Update {
  std::vector<std::size_t> numbers;  // of its heads among those of the training, ascending
  Heads heads;
  Network* network = nullptr;      // computes the outputs of these heads alone
  std::vector<std::string> learn;  // the parts that learn; empty: all
  std::vector<FlatEntry> buffers;  // of the norms in its network
  std::int64_t every = 1;          // steps
  // The gradients that it computes lie between these positions of the state's exchange array.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::unique_ptr<UpdatePenalty> penalty = {};  // nullptr: none
  // Values of a sample in the network's outputs.
  std::size_t output_count() const {
    return heads.all_output_count() + (penalty && !penalty->input ? penalty->values : 0);
  }
};

class Updates {
 public:
  // `whole`: the network with the outputs of all heads. Further networks share the arrays of `state`. All
  // three must outlive the updates.
  Updates(const Session& session, const Heads& heads, FlatState& state, Network& whole);

  std::span<const Update> all() const { return updates_; }
  bool alternate() const { return !networks_.empty(); }
  // Network::values_changed() of all networks.
  void values_changed();

 private:
  void add(const Session& session, const Heads& heads, FlatState& state, const AlternateConfig& entry);
  static std::unique_ptr<UpdatePenalty> penalty_of(const Session& session, FlatState& state,
                                                   const AlternateConfig& entry, std::size_t from);

  Network& whole_;
  std::vector<std::unique_ptr<Network>> networks_;
  std::vector<Update> updates_;
};

// The parts that learn in some updates only: each needs an optimizer of its own.
std::vector<std::string> alternating_parts(const TrainConfig& config);

}  // namespace wflow::trainer
