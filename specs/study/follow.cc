// SPDX-License-Identifier: Apache-2.0
// follow: of a train: step. Each stage is a step of its own, which waits for the first blocks of the data set
// and for the stage before; the last training has the step's name, so that others can wait for it.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"
#include "trainer/follow_config.h"

namespace wflow::specs {

namespace {

std::string stage_name(const std::string& step, std::int64_t stage) {
  return fmt::format("{}.follow_{}", step, stage);
}

const yaml::Node* follow_of(const Step& step) {
  return step.kind == StepKind::train ? step.settings.find("follow") : nullptr;
}

}  // namespace

std::optional<FollowStage> follow_stage(const Step& step) {
  const yaml::Node* follow = follow_of(step);
  const auto number = [&](const char* key) {
    const yaml::Node* node = follow == nullptr || !follow->is_map() ? nullptr : follow->find(key);
    return node == nullptr ? std::nullopt : text::to_integer(node->text);
  };
  const auto stage = number("stage");
  if (!stage) return std::nullopt;
  const std::string suffix = stage_name("", *stage);
  const bool last = *stage == 0;
  return FollowStage{last ? step.name : step.name.substr(0, step.name.size() - suffix.size()), *stage,
                     number("stages").value_or(trainer::kUsualStages)};
}

std::string follow_step(const std::string& step, std::int64_t stage) {
  return stage_name(step, stage);
}

std::uint64_t blocks_of_stage(const FollowStage& stage, std::uint64_t blocks) {
  const auto parts = static_cast<std::uint64_t>(stage.stages) + 1;
  const auto part = static_cast<std::uint64_t>(stage.stage);
  return std::max<std::uint64_t>(1, (blocks * part + parts - 1) / parts);
}

namespace {

// The stages before the last training; 0: it does not follow.
std::int64_t stages_of(Reading& reading, const Step& step) {
  const yaml::Node* follow = follow_of(step);
  if (follow == nullptr) return 0;
  if (has_token(*follow)) {
    reading.diagnostics.error(
        follow->mark, "'follow' can't depend on parameters: its steps are made before; write the value");
    return 0;
  }
  refuse_campaign_keys(reading, *follow, "follow", trainer::kCampaignFollowKeys);
  yaml::Diagnostics later("");  // the last training is checked like any other
  const std::int64_t stages = trainer::read_follow(*follow, later).stages;
  const std::string source = source_step(step);
  const auto from = std::ranges::find(reading.study.steps, source, &Step::name);
  if (stages == 0 || (from != reading.study.steps.end() && from->kind == StepKind::convert)) return stages;
  reading.diagnostics.error(
      follow->mark,
      fmt::format("'follow' of '{}' needs a data set that a convert: step of this study writes: name it in "
                  "'data'",
                  step.name));
  return 0;
}

Step stage_of(const Step& step, std::int64_t stage, std::int64_t stages) {
  Step next = step;
  yaml::Node& follow = *next.settings.find("follow");
  if (!follow.is_map()) follow = yaml::map({});
  set_key(follow, "stages", yaml::scalar(std::to_string(stages)));
  set_key(follow, "stage", yaml::scalar(std::to_string(stage)));
  if (stage > 0) next.name = stage_name(step.name, stage);
  const std::int64_t before = stage > 0 ? stage - 1 : stages;
  if (before > 0) next.depends.push_back({stage_name(step.name, before), false});
  return next;
}

}  // namespace

void expand_follows(Reading& reading) {
  divide_steps(reading, "a stage of", [&](const Step& step) {
    const std::int64_t stages = stages_of(reading, step);
    Division division;
    for (std::int64_t stage = 1; stage <= stages; ++stage) {
      division.steps.push_back(stage_of(step, stage, stages));
      division.names.push_back(division.steps.back().name);
    }
    if (stages > 0) division.steps.push_back(stage_of(step, 0, stages));
    return division;
  });
}

}  // namespace wflow::specs
