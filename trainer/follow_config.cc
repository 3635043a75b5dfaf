// SPDX-License-Identifier: Apache-2.0
#include "trainer/follow_config.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "base/config_table.h"
#include "base/text.h"
#include "trainer/search_config.h"

namespace wflow::trainer {
namespace {

// The error over that of the mean guess.
constexpr std::string_view kError = "validation_error";
constexpr std::string_view kErrorMetric = "mae_ratio";

}  // namespace

std::string GoalConfig::text() const {
  return fmt::format("validation_{} {} {:g}", metric.text(), above ? '>' : '<', value);
}

const config::Table<FollowConfig>& follow_table() {
  static const config::Table<FollowConfig> table(
      "the follow: block",
      {config::integer("stages", &FollowConfig::stages, 1, kMostStages,
                       "trainings before the last one: stage K of N waits for K / (N + 1) of the data set's "
                       "blocks, and for the stage before")
           .usually(std::to_string(kUsualStages)),
       config::integer("epochs", &FollowConfig::epochs, 1, kMostEpochs,
                       "passes of each stage over the samples of its blocks, at a constant rate"),
       config::custom<FollowConfig>(
           "stage", config::integer_schema(0, kMostStages), "set by the campaign: the stage to train",
           [](yaml::MapReader& reader, std::string_view key, FollowConfig& follow) {
             follow.stage = reader.integer(key, 0, 0, kMostStages);
           },
           [](const FollowConfig& follow) -> std::optional<yaml::Node> {
             return follow.is_stage() ? std::optional(config::emit_integer(follow.stage)) : std::nullopt;
           })
           .unlisted(),
       config::custom<FollowConfig>(
           "folders", {{"type", "array"}, {"items", {{"type", "string"}}}},
           "set by the campaign: outputs of the stages before",
           [](yaml::MapReader& reader, std::string_view key, FollowConfig& follow) {
             follow.folders = reader.strings(key);
           },
           [](const FollowConfig& follow) -> std::optional<yaml::Node> {
             return follow.folders.empty() ? std::nullopt : std::optional(config::emit_texts(follow.folders));
           })
           .unlisted(),
       config::integer("blocks", &FollowConfig::blocks, 0, std::numeric_limits<std::int64_t>::max(),
                       "set by the campaign: the first blocks of the data set, which the stage trains on")
           .unless_default()
           .unlisted(),
       config::text("source", &FollowConfig::source, "set by the campaign: the data set")
           .unless_default()
           .unlisted()});
  return table;
}

FollowConfig read_follow(const yaml::Node& node, yaml::Diagnostics& diagnostics) {
  FollowConfig follow;
  if (node.is_map()) {
    follow.stages = kUsualStages;
    follow_table().read(node, follow, diagnostics);
  } else if (yaml::as_boolean(node, "follow", diagnostics).value_or(false)) {
    follow.stages = kUsualStages;
  }
  return follow;
}

GoalConfig read_goal(const yaml::Node& node, yaml::Diagnostics& diagnostics) {
  GoalConfig goal;
  const std::string_view written = node.is_scalar() ? std::string_view(node.text) : std::string_view();
  const std::size_t sign = written.find_first_of("<>");
  const std::string_view name = text::trim(written.substr(0, sign));
  const auto value =
      sign == std::string_view::npos ? std::nullopt : text::to_real(text::trim(written.substr(sign + 1)));
  const auto metric = name == kError ? metric_named(kErrorMetric) : search_metric(name);
  if (value && metric) return {*metric, *value, written[sign] == '>', true};
  diagnostics.error(node.mark,
                    fmt::format("'until' must compare a metric in validation with a number, such as "
                                "'validation_error < 0.05'; found {}",
                                node.describe()));
  return goal;
}

}  // namespace wflow::trainer
