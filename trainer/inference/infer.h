// SPDX-License-Identifier: Apache-2.0
// `wflow infer TRAINING`: which parameters made an observation, by a network that has learnt their density.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/inference/posterior.h"

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

// Posteriors as JSON and as tables: the common part of `wflow infer` with a density and with traces.

inline constexpr std::size_t kJsonObservations = 20;  // in inference.json
inline constexpr std::size_t kTableObservations = 5;  // on standard output

// An observation in inference.json: `truth` may be empty.
nlohmann::json posterior_json(std::int64_t id, const PosteriorDraws& draws,
                              std::vector<ParameterSummary> summaries, const std::vector<std::string>& names,
                              const std::vector<double>& truth);
std::string posterior_table(const nlohmann::json& one);

// `joint`: the calibration has the densities of draws and truths.
nlohmann::json calibration_json(const Calibration& calibration, const std::vector<std::string>& names,
                                bool joint);
std::string calibration_table(const nlohmann::json& calibration);

// `wflow infer TRAINING --simulator LIBRARY`: which draws of a simulator made an observation. Runs a campaign
// whose processes have simulator and network side by side, and gathers its traces.

struct TraceInferOptions {
  std::string training;   // with `model: inference`
  std::string simulator;  // the plugin's library, or empty; a name without a slash may be in lib/wflow
  std::string command;    // a program in place of it, or, with a library of that kind, for it
  std::string symbol = "wflow_plugin";
  std::string observe;           // as InferOptions
  std::string split = "test";    // of a data set
  std::size_t observations = 0;  // the first of them; 0: one, or with `calibrate` 100
  std::string method = "ic";     // is, ic or rmh (traces/inference.h)
  std::size_t traces = 10000;    // runs for each observation
  std::size_t chains = 4;        // rmh
  double burn_in = 0.2;          // rmh: share of a chain that is left out
  std::uint64_t seed = 1;
  bool calibrate = false;
  std::string
      output;        // folder for the campaign, posterior.h5 and inference.json; empty: that of the training
  std::string data;  // of the training
  std::size_t cores = 0;  // for the campaign; 0: all
};

// Error{usage} or Error{data} if options, training and simulator do not fit. The same options go on with an
// interrupted campaign.
void infer_traces(const TraceInferOptions& options);

}  // namespace wflow::trainer
