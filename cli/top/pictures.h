// SPDX-License-Identifier: Apache-2.0
// Data of the dashboard from a campaign's record: as it stands, or as it stood at some time of its run. Pure.
#pragma once

#include "cli/top/data.h"
#include "engine/query/client.h"
#include "specs/plan/plan.h"

namespace wflow::cli::top {

inline constexpr std::size_t kSlices = 240;  // of a campaign's time

std::map<std::string, StepNeeds> needs_of(const specs::Plan& plan);

TopData picture_of(const engine::RecordedCampaign& record);
// At `at_s` (Unix time). Ended tasks are as many as their records say had ended by then; which tasks ran at
// that moment the record does not say.
TopData picture_at(const engine::RecordedCampaign& record, double at_s);

}  // namespace wflow::cli::top
