// SPDX-License-Identifier: Apache-2.0
// A command that changes a campaign while another process coordinates it: it drains that coordinator, waits
// for its end, and goes on in its place, as it was started (wflow redo, resume --update, extend).
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "cli/campaign/update.h"
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

struct UpdateFlags {
  bool yes = false;
  bool keep_old = false;
  std::string why;  // -m
};
void add_update_flags(CLI::App& command, UpdateFlags& flags);

// Ends what a coordinator that was killed left behind, and reads what its workers have recorded, so that no
// task of an old plan runs beside those of a new one. Error{busy} where a coordinator lives.
void settle(const specs::Plan& plan, const RunOptions& run);

// Whether the command may go on: asks on a terminal, unless there is no need to.
bool may_go_on(const UpdateFlags& flags, const RunOptions& run, bool live, const std::string& question);
// Drains the coordinator that runs and waits for its end; `run` is then as that one was started, where the
// command line said nothing else. Gives the plan as it is then.
specs::Plan take_turn(const specs::Plan& plan, RunOptions& run);

// Shows what will be done, asks on a terminal, and does it; a coordinator that runs is drained first, and the
// update then made of what has ended meanwhile. The plan to go on with; nothing: the answer was no.
std::optional<specs::Plan> take_over(const specs::Plan& plan, const std::function<Update()>& propose,
                                     const UpdateFlags& flags, UpdateOptions options, RunOptions& run);

}  // namespace wflow::cli
