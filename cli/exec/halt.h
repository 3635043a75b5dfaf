// SPDX-License-Identifier: Apache-2.0
// The rule of `wflow exec --halt`, as GNU parallel has it: when to stop before all commands have run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/monitor/status.h"

namespace wflow::cli {

struct HaltRule {
  enum class When { never, soon, now };  // soon: running commands end; now: they are killed
  enum class What { fail, success, done };
  When when = When::never;
  What what = What::fail;
  std::uint64_t count = 1;
  double percent = 0;  // above 0: of all commands, instead of `count`
};

// "never", "soon,fail=3", "now,success=1", "soon,fail=10%", and 0, 1, 2 for never, soon,fail=1, now,fail=1.
// Error{usage} for anything else.
HaltRule read_halt(std::string_view text);

// The `max_failures` of a step: the scheduler starts nothing after that failure.
std::string max_failures_of(const HaltRule& rule);

bool is_met(const HaltRule& rule, const engine::CampaignStatus& status);

}  // namespace wflow::cli
