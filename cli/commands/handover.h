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

// Drains the coordinator, with a message unless `silent`. Returns once no process coordinates the campaign
// and that process has ended. If this one is killed before, the campaign is drained and wflow resume
// continues it. Error{busy} if the coordinator is out of reach.
void drain_and_wait(const std::filesystem::path& campaign, bool silent);

// Records the options with which a coordinator was started, in .wflow/coordinator.json.
void record_start(const std::filesystem::path& campaign, const RunOptions& options);
// Sets options that the command line does not give to those of the last coordinator, except the time limit.
void take_start(const std::filesystem::path& campaign, RunOptions& options);

struct UpdateFlags {
  bool yes = false;
  bool yes_is_usual = false;  // Enter means yes
  bool keep_old = false;
  bool touch = false;  // the changes do not matter: nothing that has ended runs again
  std::string why;     // -m
};
void add_update_flags(CLI::App& command, UpdateFlags& flags);

// Ends the workers that a killed coordinator left behind, and reads the results that they recorded, so that
// no task of an old plan runs beside those of a new one. Error{busy} if a coordinator lives.
void settle(const specs::Plan& plan, const RunOptions& run);

// The number of tasks that run (again) if the changes are taken in.
std::uint64_t tasks_to_run(const engine::Changes& changes);
// Prints what has changed and what would run.
void print_update(const Update& update, bool keep_old = false);

// True if the command may go on: asks on a terminal, unless the flags make it unnecessary.
bool may_go_on(const UpdateFlags& flags, const RunOptions& run, bool live, const std::string& question);
// Drains the running coordinator and waits for its end. Sets `run` to the options of that coordinator, except
// those that the command line gives. Returns the plan after that.
specs::Plan take_turn(const specs::Plan& plan, RunOptions& run);

// Shows the changes, asks on a terminal, and makes them. Drains a running coordinator first, and then
// computes the update again from the tasks that have ended meanwhile. The plan to go on with; empty: the user
// declined.
std::optional<specs::Plan> take_over(const specs::Plan& plan, const std::function<Update()>& propose,
                                     const UpdateFlags& flags, UpdateOptions options, RunOptions& run);

}  // namespace wflow::cli
