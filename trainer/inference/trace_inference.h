// SPDX-License-Identifier: Apache-2.0
// `wflow infer TRAINING --simulator LIBRARY`: which draws of a simulator made an observation. Runs a campaign
// whose processes have simulator and network side by side, and gathers its traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace wflow::trainer {

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
