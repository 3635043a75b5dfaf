// SPDX-License-Identifier: Apache-2.0
// One training run, the same program on every rank: data, network, steps, validation, checkpoints, results.
#pragma once

#include <functional>
#include <vector>

#include "base/error.h"
#include "trainer/config.h"
#include "trainer/parallel/communicator.h"
#include "trainer/search_config.h"
#include "trainer/training/guard.h"

namespace wflow::trainer {

// An error that every rank throws at the same place: no rank is left waiting, rank 0 speaks for all.
class CommonError : public Error {
 public:
  using Error::Error;
};

struct RunOptions {
  bool fresh = false;  // forget earlier checkpoints
  bool fresh_on_new_data =
      false;  // forget them where nothing but the data has changed since, instead of an error
  std::function<bool()> stop_asked;  // a signal has come
  std::vector<BitFlip> bit_flips;    // errors on purpose, each once
  SearchConfig search;               // of which this training is one; off: of none
  // Of an ensemble (training/members.h): which of how many trainings this is.
  std::int64_t member = 0;
  std::int64_t members = 1;
  std::function<void()> metrics_written = {};  // rank 0 has written this training's metrics
};

enum class Outcome { finished, interrupted };

Outcome train(const TrainConfig& config, Communicator& communicator, const RunOptions& options);

// What --dry-run prints: network, parameters, flops, memory, steps. Reads the manifest, trains nothing.
std::string describe_run(const TrainConfig& config);

}  // namespace wflow::trainer
