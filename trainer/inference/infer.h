// SPDX-License-Identifier: Apache-2.0
// `wflow infer TRAINING`: which parameters made an observation, by a network that has learnt their density.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace wflow::trainer {

inline constexpr int kInferenceFormat = 1;

struct InferOptions {
  std::string training;  // the folder of a finished training with `loss: mixture`
  // Observations, as `wflow predict` reads them: a data set, a table, an HDF5 file with the inputs. Empty:
  // the test samples of the training.
  std::string observe;
  std::string split = "test";  // of a data set
  std::size_t draws = 10000;   // for each observation
  std::uint64_t seed = 1;
  bool calibrate = false;  // compare with the known parameters of the observations
  // Of one observation: that many draws in samples.csv, and that many samples for a further round in
  // proposals.csv (propose()); tables without a header, as `samples:` and `iterate:` of a study read them.
  std::size_t samples = 0;
  std::size_t proposals = 0;
  bool bounded = true;  // draw within the range of the training samples' parameters
  std::string output;   // folder for posterior.h5 and inference.json; empty: that of the training
  std::string data;     // of the training, for that range; empty: as train.yaml names it
};

// Writes posterior.h5 and inference.json, and a table to standard output. Error{usage} or Error{data} if
// options, model and observations do not fit.
void infer(const InferOptions& options);

}  // namespace wflow::trainer
