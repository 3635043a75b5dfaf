// SPDX-License-Identifier: Apache-2.0
// A command that changes a campaign while another process coordinates it: it drains that coordinator, waits
// for its end, and goes on in its place, as it was started (wflow redo, resume --update, extend).
#pragma once

#include <filesystem>

#include "cli/commands/run.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

bool is_coordinated(const specs::Plan& plan);

// Says so unless `silent`. Returns once nobody coordinates the campaign and that process has ended. Killed
// before, the campaign is drained and wflow resume goes on with it. Error{busy} where the coordinator is out
// of reach.
void drain_and_wait(const std::filesystem::path& campaign, bool silent);

// What a coordinator was started with, in .wflow/coordinator.json.
void record_start(const std::filesystem::path& campaign, const RunOptions& options);
// What the command line does not say is as the last coordinator had it; its time limit was its own.
void take_start(const std::filesystem::path& campaign, RunOptions& options);

}  // namespace wflow::cli
