// SPDX-License-Identifier: Apache-2.0
// Coordinating a campaign from this process: for run, resume and retry.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/coordinate/machine.h"
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
  bool detach = false;
  bool keep_going = false;
  bool soft_fail_ok = false;  // tasks that failed softly leave exit code 0, as with Merlin
  bool json = false;
  std::optional<engine::wire::RetryRequest> retry;
  engine::RunAgain run_again;
  bool silent() const { return quiet || json; }
};

// Options that run, resume and retry share.
void add_common(CLI::App& command, RunOptions& options);

// --time-limit in seconds, 0 without one. Error{usage} for what is no time.
double limit_of(const RunOptions& options);

// Runs the campaign, and what follows on it, to the end and shows it; or, with --detach, starts a process of
// its own that does.
int coordinate(const specs::Plan& plan, const RunOptions& options, bool resumed);

// attach.cc: shows a campaign that another process runs until it has ended. Ctrl-C ends only the showing.
int follow(const std::filesystem::path& campaign, bool quiet, bool json);
// Goes on in a process of its own, which outlives the terminal; true there, false here once that one
// coordinates.
bool detach(const std::filesystem::path& campaign);

// rerun.cc: keeps this process's variables, 0600, for wflow rerun.
void record_environment(const std::filesystem::path& campaign);

}  // namespace wflow::cli
