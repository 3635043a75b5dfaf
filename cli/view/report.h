// SPDX-License-Identifier: Apache-2.0
// A campaign's status as text; the same lines serve `wflow status`, the live display and the end of a run.
#pragma once

#include <string>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/monitor/status.h"

namespace wflow::cli {

// Name, state, elapsed time; one line a step; the training curve while there is one.
// A line a pool; `everything`: also one an allocation, else only of those that will never start.
std::vector<std::string> allocation_lines(const engine::wire::AllocationsAnswer& answer, double now_s,
                                          bool everything);
std::string allocation_line(const engine::wire::AllocationView& allocation, double now_s);
std::vector<std::string> overview(const engine::CampaignStatus& status, const Terminal& terminal);
// Failures with the end of their output, workers, artifacts, history.
std::vector<std::string> details(const engine::CampaignStatus& status, const Terminal& terminal,
                                 bool everything);
// "epoch 3: train_loss 0.12, validation_loss 0.10" of the newest epoch, or an empty string.
std::string training_line(const engine::CampaignStatus& status);
std::uint64_t newest_epoch(const engine::CampaignStatus& status);

std::string clock_time(double unix_s);  // "2026-11-21 16:00:01"

}  // namespace wflow::cli
