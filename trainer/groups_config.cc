// SPDX-License-Identifier: Apache-2.0
#include "trainer/config.h"

#include <array>
#include <string>
#include <string_view>

#include "base/config_table.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kMostGroups = 65536;
constexpr std::int64_t kMostSteps = 1'000'000'000;
const std::array<std::string, 1> kNodes = {"nodes"};

void read_count(yaml::MapReader& reader, std::string_view key, GroupsConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr || (node->is_scalar() && node->text == kNodes.front())) return;
  config.count = reader.integer(key, 0, 1, kMostGroups);
}

}  // namespace

const config::Table<OuterConfig>& outer_table() {
  static const config::Table<OuterConfig> table(
      "the outer: block",
      {config::real("rate", &OuterConfig::rate, 1e-3, 10,
                    "part of the way from the weights of the last outer step to the mean of the groups' "
                    "weights; below 1 it damps, above 1 it overshoots"),
       config::real("momentum", &OuterConfig::momentum, 0, 0.999,
                    "Nesterov momentum of the outer steps; 0.9 with `rate: 0.7` is the setting of DiLoCo")});
  return table;
}

const config::Table<GroupsConfig>& groups_table() {
  static const config::Table<GroupsConfig> table(
      "the groups: block",
      {config::custom<GroupsConfig>(
           "count", config::any_of({config::integer_schema(1, kMostGroups), config::choice_schema(kNodes)}),
           "number of groups; `ranks` is a multiple of it. `nodes`: one group a node", read_count,
           [](const GroupsConfig& config) {
             return config.count == 0 ? yaml::scalar(kNodes.front()) : config::emit_integer(config.count);
           }),
       config::integer("steps", &GroupsConfig::steps, 1, kMostSteps,
                       "steps that each group makes by itself between two outer steps; the end of an epoch "
                       "is an outer step, too")
           .required(),
       config::block("outer", &GroupsConfig::outer, outer_table(),
                     "how the groups' weights become those of the outer step: [keys](#keys-of-outer)")
           .usually("the mean")});
  return table;
}

}  // namespace wflow::trainer
