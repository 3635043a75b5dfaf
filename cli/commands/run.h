// SPDX-License-Identifier: Apache-2.0
// Coordinating a campaign from this process: for run, resume and retry.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/batch/allocation.h"
#include "engine/coordinate/machine.h"
#include "engine/monitor/status.h"
#include "engine/wire/requests.h"
#include "specs/plan/plan.h"
#include "specs/study/study.h"

namespace wflow::cli {

struct RunOptions {
  std::string study;
  std::string campaign;
  specs::ReadOptions read;
  int slots = 0;
  std::string time_limit;
  bool quiet = false;
  bool dry = false;
  bool local = false;  // whatever scheduler the study asks for
  bool zero = false;
  double zero_failures = 0;
  std::uint64_t zero_bundle = 0;
  bool listen = false;  // for workers of other hosts
  double fence_s = 0;   // of the tests
  bool detach = false;
  bool keep_going = false;
  bool soft_fail_ok = false;  // tasks that failed softly leave exit code 0, as with Merlin
  bool json = false;
  std::optional<engine::wire::RetryRequest> retry;
  engine::RunAgain run_again;
  std::optional<engine::batch::AllocationAround> around;  // set by coordinate()
  engine::OwnAllocation own_allocation;  // of a coordinator in an allocation, and of the one that gets it
  std::optional<engine::wire::Request> first;  // for a campaign that nobody coordinates
  bool silent() const { return quiet || json; }
};

// Options that run, resume and retry share.
void add_common(CLI::App& command, RunOptions& options);

// Makes the campaign of a study that was just read: one that can be resumed, or nothing.
specs::Plan create(const specs::StudyAndWarnings& read);

// --time-limit in seconds, 0 without one. Error{usage} for what is no time.
double limit_of(const RunOptions& options);

// Runs the campaign, and what follows on it, to the end and shows it; or, with --detach, starts a process of
// its own that does.
int coordinate(const specs::Plan& plan, const RunOptions& options, bool resumed);

struct RunEnd {
  int code = 0;
  bool handed_over = false;  // another process goes on
};
// Coordinates from this process, to the end or until it hands over.
RunEnd run_here(const specs::Plan& plan, const RunOptions& options, bool resumed);

// in_allocation.cc: `batch: {coordinator: in_allocation}`. Submits what the campaign wants and follows the
// coordinator that starts with it; with --detach it does not follow.
bool lives_in_allocations(const specs::Plan& plan, const RunOptions& options);
int coordinate_in_allocations(const specs::Plan& plan, const RunOptions& options, bool resumed);
// For wflow attach.
int attach_in_allocations(const specs::Plan& plan, bool quiet, bool json);
// Such a campaign between two allocations: this process coordinates it for as long as the command takes.
// False: it is none, or it was ended on purpose, or somebody coordinates it.
bool command_between_allocations(const specs::Plan& plan, const engine::wire::Request& request);

// attach.cc: shows a campaign that another process runs until it has ended. Ctrl-C ends only the showing.
int follow(const std::filesystem::path& campaign, bool quiet, bool json);
// Goes on in a process of its own, which outlives the terminal; true there, false here once that one
// coordinates.
bool detach(const std::filesystem::path& campaign);
// With what follows on it.
ExitCode whole_code(const engine::CampaignStatus& status);

// rerun.cc: keeps this process's variables, 0600, for wflow rerun.
void record_environment(const std::filesystem::path& campaign);

}  // namespace wflow::cli
