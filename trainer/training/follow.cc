// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/follow.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"

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

struct StagesBefore {
  std::string newest;  // the folder of the last one that has trained; empty: none has
  bool goal_is_met = false;
};

StagesBefore look(const std::vector<std::string>& folders) {
  StagesBefore found;
  for (const std::string& folder : folders) {
    if (fs::exists(fs::path(folder) / "checkpoints")) found.newest = folder;
    found.goal_is_met = found.goal_is_met || fs::exists(fs::path(folder) / kGoalFile);
  }
  return found;
}

}  // namespace

Followed followed(const TrainConfig& config, Communicator& ranks) {
  Followed result{config, {}};
  if (!config.follow.on()) return result;
  StagesBefore before;
  if (ranks.rank() == 0) before = look(config.follow.folders);
  std::string words = (before.goal_is_met ? "1" : "0") + before.newest;
  ranks.broadcast(words);
  if (const std::string newest = words.substr(1); !newest.empty()) result.config.init_from = newest;
  if (!config.follow.is_stage()) return result;
  if (words.front() == '1')
    result.done = fmt::format("a stage before has met the goal ({}): this one has nothing to train",
                              config.until.text());
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
