// SPDX-License-Identifier: Apache-2.0
// The `groups:` block of `train:`.
#pragma once

#include <cstdint>

#include "base/yaml.h"

namespace wflow::config {
template <typename Config>
class Table;
}

namespace wflow::trainer {

// The step that all groups take together: trainer/training/outer_step.h.
struct OuterConfig {
  double rate = 1;
  double momentum = 0;
  bool is_mean() const { return rate == 1 && momentum == 0; }
  bool operator==(const OuterConfig&) const = default;
};

// Groups of ranks that train by themselves between outer steps.
struct GroupsConfig {
  std::int64_t count = 0;  // 0: one group a node
  std::int64_t steps = 0;  // of a group between two outer steps; 0: no groups
  OuterConfig outer;
  bool on() const { return steps > 0; }
  bool operator==(const GroupsConfig&) const = default;
};

const config::Table<GroupsConfig>& groups_table();
const config::Table<OuterConfig>& outer_table();

}  // namespace wflow::trainer
