// SPDX-License-Identifier: Apache-2.0
// Chooses the ranks that share a sample before a training starts: what each grid needs in memory is counted,
// the passes of one rank's part are measured, and the wire between ranks as well.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/model/distribution.h"
#include "trainer/model/layout.h"
#include "trainer/model/model_graph.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/pass_times.h"

namespace wflow::trainer {

// The memory of a rank, in bytes.
struct RankMemory {
  std::int64_t program = 0;  // libraries and their buffers
  std::int64_t state =
      0;  // weights, gradients, the optimizer's state, averages; copies while these are written
  std::int64_t samples = 0;  // batches on their way to the network
  std::int64_t step = 0;  // step_bytes() of the samples that it computes at once, or what `init: data` needs
  std::int64_t total() const { return program + state + samples + step; }
};

// A grid that was considered. 1 x 1 x 1: each rank has whole samples.
struct GridPlan {
  SpaceGrid grid;
  std::int64_t samples = 0;  // that a rank computes at once
  RankMemory memory;         // of the rank that needs most
  bool fits = true;
  // Seconds of a step; 0: not measured.
  double compute_seconds = 0;  // forward and backward passes of the slowest rank's part, without the others
  double wire_seconds = 0;     // what halos, sums and gradients add
  double update_seconds = 0;   // of the weights
  double samples_seconds = 0;  // what the loader's threads take from the passes, where they have no core
  // Where the samples are cut; none: whole samples, or a plan that was read from a file.
  std::optional<Distribution> parts = {};
  double seconds() const { return compute_seconds + wire_seconds + update_seconds + samples_seconds; }
};

struct TrainingPlan {
  std::int64_t limit = 0;  // bytes that a rank may use; 0: any
  std::vector<GridPlan> grids;
  std::size_t chosen = 0;
  std::vector<std::string> remarks = {};  // sentences on how it was made; not kept
  const GridPlan& choice() const { return grids[chosen]; }
};

// Returns how the back end of the configuration sends gradients of halos.
inline HaloGradients halo_gradients(const TrainConfig& config) {
  return config.backend == Backend::torch ? HaloGradients::parts : HaloGradients::groups;
}

struct PlanTask {
  const TrainConfig& config;
  const ModelGraph& graph;
  std::int64_t target_values = 0;  // floats of a sample beside the network's inputs
  std::optional<SpaceGrid> given;  // the grid of the configuration
  int ranks = 1;
  // Samples of the largest split that it evaluates.
  std::int64_t most_evaluated = std::numeric_limits<std::int64_t>::max();
};

// The memory of the rank that needs most, without the cache. Null: whole samples. `program`: bytes before the
// training. With `deterministic: grid`, the parts are those of the configuration.
RankMemory memory_of(const PlanTask& task, const Distribution* parts, std::int64_t program);

// False for a training that holds more than memory_of() counts: what a TorchScript module keeps is not known,
// and neither are the several networks of `alternate`, the models of a tournament, and staged data. On a GPU,
// the memory is not that of the process.
bool predicts_memory(const TrainConfig& config, const ModelGraph& graph);

// The grids that the ranks can form, fewest ranks a sample first, with their memory; the given one alone if
// there is one. Measures nothing.
std::vector<GridPlan> possible_grids(const PlanTask& task, std::int64_t program);

// Why the training can't start, with the numbers: no grid is possible, or none fits in the memory. Empty if
// one fits. `program` as for possible_grids().
std::string refusal_of(const PlanTask& task, const std::vector<GridPlan>& grids, std::int64_t program);

// A collective call. Throws CommonError{spec} with the refusal. `times`: the file of pass_times.h, of which
// rank 0 takes what earlier plans have measured, and which gets what this one measures; empty: none.
TrainingPlan plan_training(const PlanTask& task, Communicator& ranks,
                           const std::filesystem::path& times = {});

// A table for output.
std::string describe(const TrainingPlan& plan);
nlohmann::json to_json(const TrainingPlan& plan);
std::optional<TrainingPlan> plan_from_json(const nlohmann::json& json);

// Measures the passes of one rank's part of a network and the wire between ranks, and adds up the seconds of
// a step from both.

// Seconds of a step's passes over the part that a rank has of a grid's samples, without messages, of the
// update of the weights, and of the preparation of the samples: of the slowest rank, the medians of several
// steps. A collective call: all ranks begin a step at the same time, as in the training.
PassSeconds measure_passes(const PlanTask& task, const GridPlan& plan, Communicator& ranks);

struct WireSpeed {
  double latency = 0;           // seconds of a small message between two ranks, for the computing thread
  double bytes_per_second = 1;  // of large ones
  double sum_latency = 0;       // seconds of a sum of few numbers over all ranks
  double sum_seconds = 0;       // for each number of a large one
  // Cores that a rank has beside those of its threads, 1 at most: without one, the sums of gradients and the
  // loader take their time from the passes.
  double free_cores = 1;
};
// A collective call.
WireSpeed measure_wire(const PlanTask& task, Communicator& ranks);

// Sets the seconds of the plan.
void set_seconds(const PlanTask& task, const PassSeconds& pass, const WireSpeed& wire, GridPlan& plan);

}  // namespace wflow::trainer
