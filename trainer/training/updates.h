// SPDX-License-Identifier: Apache-2.0
// The updates that a step of a training makes, one after the other on the same batch (`alternate`). Usually it
// is one, with the losses of all heads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/network.h"
#include "trainer/training/heads.h"
#include "trainer/training/session.h"

namespace wflow::trainer {

struct Update {
  std::vector<std::size_t> numbers;  // of its heads among those of the training, ascending
  Heads heads;
  Network* network = nullptr;      // computes the outputs of these heads alone
  std::vector<std::string> learn;  // the parts that learn; empty: all
  std::vector<FlatEntry> buffers;  // of the norms in its network
  std::int64_t every = 1;          // steps
};

class Updates {
 public:
  // `whole`: the network with the outputs of all heads. Further networks share the arrays of `state`. All three
  // must outlive the updates.
  Updates(const Session& session, const Heads& heads, FlatState& state, Network& whole);

  std::span<const Update> all() const { return updates_; }
  bool alternate() const { return !networks_.empty(); }
  // Network::values_changed() of all networks.
  void values_changed();

 private:
  void add(const Session& session, const Heads& heads, FlatState& state, const AlternateConfig& entry);

  Network& whole_;
  std::vector<std::unique_ptr<Network>> networks_;
  std::vector<Update> updates_;
};

// The parts that learn in some updates only: each needs an optimizer of its own.
std::vector<std::string> alternating_parts(const TrainConfig& config);

}  // namespace wflow::trainer
