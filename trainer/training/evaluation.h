// SPDX-License-Identifier: Apache-2.0
// Evaluates and predicts with the weights that a training reports and exports, over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/model/network.h"
#include "trainer/training/heads.h"
#include "trainer/training/pictures.h"
#include "trainer/training/prediction_file.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

// Memory of one pass through the network. Training and evaluation share it: they take turns.
struct PassBuffers {
  Feed feed;
  std::vector<float> outputs;
};

// Every call but evaluation_of() is collective.
class Evaluator {
 public:
  Evaluator(Session& session, const Heads& heads, TrainingState& state, Network& network,
            PassBuffers& buffers)
      : session_(session), heads_(heads), state_(state), network_(network), buffers_(buffers) {}

  // Errors on the validation split with the evaluation weights. The training weights are back afterwards; the
  // norms' statistics stay those of the evaluation.
  Evaluation validate();
  double seconds() const { return seconds_; }  // in validate()
  // The same on other samples.
  Evaluation errors_on(CachedSplit& split);
  // On rank 0: samples that heads without a truth made in the last validate().
  const std::vector<Made>& made() const { return made_; }

  // The weights that are evaluated and exported: the averaged ones where there is an average, and statistics
  // of the norms that belong to these weights. The running statistics lag behind by tens of batches.
  void use_evaluation_weights();

  struct Records {
    std::vector<double> sums;           // Heads::record() of all ranks' samples
    std::vector<std::uint64_t> counts;  // and its counts, summed over the ranks
  };
  Records predict(CachedSplit& split);
  // Rank 0 also writes every prediction into `file`, which is nullptr on the other ranks.
  Records predict_into(PredictionFile* file, CachedSplit& split);
  Evaluation evaluation_of(const Records& records) const;

 private:
  // Calls `done(first row, samples)` after each pass, as often on every rank; there may be no samples.
  using PassDone = std::function<void(std::size_t first, std::size_t samples)>;
  Records predict(CachedSplit& split, const PassDone& done);
  Evaluation errors_on(CachedSplit& split, const PassDone& done);
  void write_rows(PredictionFile* file, std::size_t first, std::size_t samples);
  void use_training_weights();
  void swap_weights();
  void return_free_memory() const;
  void measure_norms();
  void keep_made(std::size_t samples);

  Session& session_;
  const Heads& heads_;
  TrainingState& state_;
  Network& network_;
  PassBuffers& buffers_;
  double seconds_ = 0;
  std::vector<Made> made_;
};

}  // namespace wflow::trainer
