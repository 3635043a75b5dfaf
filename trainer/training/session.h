// SPDX-License-Identifier: Apache-2.0
// A training run before its first step: configuration, ranks and options as they were given, and what follows
// from them: data, network, order of the samples. The same program runs on every rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/run_data.h"
#include "trainer/model/distribution.h"
#include "trainer/model/exported_model.h"
#include "trainer/model/layout.h"
#include "trainer/model/model_export.h"
#include "trainer/model/model_graph.h"
#include "trainer/model/network.h"
#include "trainer/parallel/communicator.h"
#include "trainer/parallel/sample_parts.h"
#include "trainer/search_config.h"
#include "trainer/training/guard.h"
#include "trainer/training/planner.h"
#include "trainer/training/step_plan.h"
#include "trainer/training/stragglers.h"

namespace wflow::trainer {

class Contest;

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct RunOptions {
  bool fresh = false;                // ignore and remove earlier checkpoints
  bool fresh_on_new_data = false;    // the same, if only the data have changed since; else an error
  std::function<bool()> stop_asked;  // returns true after a signal
  std::vector<BitFlip> bit_flips;    // injected errors, each once
  std::vector<SlowRank> slow_ranks;  // injected delays
  SearchConfig search;               // the search that this training belongs to; off: none
  // Index of this training in an ensemble, and its size (train_members).
  std::int64_t member = 0;
  std::int64_t members = 1;
  std::function<void()> metrics_written = {};  // called on rank 0 after each write of the metrics
  Contest* contest = nullptr;                  // of the tournament that this trainer belongs to
};

// Groups of consecutive ranks that share their samples.
struct SampleSharing {
  SpaceGrid grid;             // of the ranks of a group
  Distribution distribution;  // of a sample: on these ranks, or with `deterministic: grid` in its parts
  std::unique_ptr<Communicator> group = nullptr;  // of this rank
  std::unique_ptr<SampleParts> parts = nullptr;   // null: each rank computes what it has as one part
};

// Consecutive ranks that sum their gradients among themselves, where there are several such groups
// (`groups`).
struct LocalGroup {
  std::unique_ptr<Communicator> ranks;  // of this rank
  int number = 0;                       // of this group, from 0
  int count = 1;
  // Those of the training's sample places (TrainingOrder::rank) that the group has.
  std::size_t first_place = 0;
  std::size_t end_place = 0;
};

// A configuration with every choice made that depends on the data (completed()) and on the ranks.
struct PlannedConfig {
  TrainConfig config;
  std::optional<TrainingPlan> plan;  // if it says which memory a rank may use, or leaves the grid open
  std::int64_t program = 0;          // bytes of the largest process so far
  ModelName network = ModelName::cosmoflow;
};

// Numbers of a training before its first step; result.json compares them with the measured ones.
struct Prediction {
  std::optional<std::int64_t> memory_bytes;  // of the rank that needs most; none: predicts_memory() is false
  std::optional<double> step_seconds;        // none: there was no plan
};

// A collective call: reads the data's manifest and, if the configuration leaves the grid open, plans it. The
// plan is kept in plan.json in the output folder: a restart on as many ranks has the same grid, and so the
// same bits. Throws CommonError{spec} with the numbers if the training does not fit in the memory.
PlannedConfig planned(const TrainConfig& config, Communicator& ranks);

struct Session {
  // A collective call.
  Session(PlannedConfig planned, Communicator& ranks, const RunOptions& run_options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool leader() const { return communicator.rank() == 0; }
  // True on one rank of those that share samples: their losses, records and predictions count there.
  bool counts_samples() const { return !sharing || sharing->group->rank() == 0; }
  // The ranks that sum the gradients of a step.
  Communicator& summing() const { return local ? *local->ranks : communicator; }
  // Seconds that this rank has waited for sums, halos and fields of others.
  double waited_seconds() const {
    // Parts of samples wait at the same time, and while others compute.
    const bool waits_for_group = sharing && !sharing->parts;
    return communicator.exposed_seconds() + (waits_for_group ? sharing->group->exposed_seconds() : 0) +
           (local ? local->ranks->exposed_seconds() : 0);
  }
  // The training's network, for whole samples: computed by this rank, or together with its group. A
  // collective call, as are those of the network.
  std::unique_ptr<Network> network(FlatState& state) const;
  // Units of the network's inputs and outputs; valid once the data's normalisation is set.
  ExportedUnits units() const;

  const TrainConfig config;
  const ModelName network_name;  // as the user knows it: `config` has the lists that `gan` stands for
  const std::optional<TrainingPlan> training_plan;
  Communicator& communicator;
  const RunOptions& options;
  RunData data;
  const ModelGraph graph;
  const ModuleScores modules;
  const std::optional<SampleSharing> sharing;  // none: each rank has samples of its own
  const std::optional<LocalGroup> local;       // none: all ranks make each step together
  const StepPlan plan;
  const nlohmann::json fingerprint;  // names the training: checkpoints of another one are refused
  Prediction prediction;

 private:
  void share_data();
  Prediction predict(std::int64_t program) const;
};

// Output of --dry-run: network, parameters, flops, memory, steps; with `grid`, or that of the configuration,
// also what ranks hold and send that share each sample. Reads the manifest only.
std::string describe_run(const TrainConfig& config, const std::optional<SpaceGrid>& grid = std::nullopt);

// The memory of each grid that the ranks of the configuration can form, and why the training would be
// refused: empty if it would start. Reads the manifest, and the plan that the training has kept, with its
// seconds.
struct MemoryTable {
  std::string text;
  std::string refusal;
  nlohmann::json
      json;  // to_json() of the plan, with the ranks and the refusal, or null; chosen: null without seconds
};
MemoryTable memory_table(const TrainConfig& config);

}  // namespace wflow::trainer
