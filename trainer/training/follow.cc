// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/trainer.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "converters/shards/manifest.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGoalFile = "goal.json";

// The first stage warms up; those behind it go on with weights that are trained.
ScheduleConfig constant(const ScheduleConfig& schedule, bool warms_up) {
  ScheduleConfig constant;
  constant.decay = Decay::none;
  if (warms_up) constant.warmup_epochs = schedule.warmup_epochs;
  return constant;
}

struct Place {
  std::string newest;  // the folder of the last stage that has trained; empty: none has
  std::string done;    // Followed::done
};

Place find_place(const TrainConfig& config) {
  Place place;
  bool goal_is_met = false;
  for (const std::string& folder : config.follow.folders) {
    if (fs::exists(fs::path(folder) / "checkpoints")) place.newest = folder;
    goal_is_met = goal_is_met || fs::exists(fs::path(folder) / kGoalFile);
  }
  if (!config.follow.is_stage()) return place;
  if (goal_is_met) {
    place.done = fmt::format("a stage before has met the goal ({}): this one has nothing to train",
                             config.until.text());
  } else if (converters::read_manifest(config.data).split("train").samples == 0) {
    place.done =
        fmt::format("no sample of the stage's blocks (the first {}) is for training: nothing to train",
                    config.follow.blocks);
  }
  return place;
}

}  // namespace

Followed followed(const TrainConfig& config, Communicator& ranks) {
  Followed result{config, {}};
  if (!config.follow.on()) return result;
  Place place;
  if (ranks.rank() == 0) place = find_place(config);
  ranks.broadcast(place.newest);
  ranks.broadcast(place.done);
  if (!place.newest.empty()) result.config.init_from = place.newest;
  if (!config.follow.is_stage()) return result;
  result.done = std::move(place.done);
  result.config.epochs = config.follow.epochs;
  result.config.schedule = constant(config.schedule, config.follow.folders.empty());
  result.config.early_stop_epochs = 0;
  result.config.select = Select::last;
  return result;
}

std::string goal_met(const TrainConfig& config, const EpochRow& row) {
  if (!config.follow.is_stage() || !config.until.is_met(value_of(row, config.until.metric))) return {};
  return fmt::format("the goal is met in stage {}, after epoch {}: validation_{} is {:.4g} ({})",
                     config.follow.stage, row.epoch, config.until.metric.text(),
                     value_of(row, config.until.metric), config.until.text());
}

void write_goal(const TrainConfig& config, const EpochRow& row, std::size_t validation_samples) {
  const nlohmann::json goal = {{"goal", config.until.text()},
                               {"stage", config.follow.stage},
                               {"epoch", row.epoch},
                               {"value", value_of(row, config.until.metric)},
                               {"validation_samples", validation_samples}};
  write_file_durably(fs::path(config.output) / kGoalFile, goal.dump(1) + "\n");
}

}  // namespace wflow::trainer
