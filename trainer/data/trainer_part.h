// SPDX-License-Identifier: Apache-2.0
// The training samples of one trainer of a tournament: those that it trains on, and those on which it judges
// models.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/sample_source.h"

namespace wflow::trainer {

struct TrainerPart {
  std::uint64_t seed = 0;  // the same for all trainers
  int trainer = 0;         // from 0
  int trainers = 1;
  double fraction = 0.1;  // held out, where there are several trainers
  bool disjoint = true;
};

enum class SamplePlace { other_trainer, training, held_out };
// A function of the part and of the sample's identity alone. Where all trainers have all samples, they hold
// out the same ones: a partner's model has not been trained on them either.
SamplePlace place_of(std::int64_t id, const TrainerPart& part);

struct DividedSamples {
  std::vector<std::size_t> training;
  std::vector<std::size_t> held_out;
};
// Indices into `samples`, ascending. CommonError{data} if one of the two is empty.
DividedSamples divided(const SampleSource& samples, const TrainerPart& part);

// The samples beside those that a trainer trains on.
struct SamplesBeside {
  std::unique_ptr<SampleSource> all;       // of all trainers; nullptr: there is one
  std::unique_ptr<SampleSource> held_out;  // nullptr: none
};

// Cross-validation (`folds`): leaves one part of the training samples out, which takes the place of the test
// split. Returns all of them, of which both are parts from now on; nullptr without folds. CommonError{data}
// if one of them is empty.
std::unique_ptr<SampleSource> leave_fold_out(Dataset& dataset, const TrainConfig& config);
// Replaces `training` by the samples that the trainer trains on. Without a part it changes nothing.
SamplesBeside take_part(std::unique_ptr<SampleSource>& training, const TrainerPart* part);

}  // namespace wflow::trainer
