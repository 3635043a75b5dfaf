// SPDX-License-Identifier: Apache-2.0
// The coordinator: one thread that carries messages to the scheduler and its decisions to workers and
// database.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/batch/allocation.h"
#include "engine/coordinate/machine.h"
#include "engine/monitor/status.h"
#include "engine/wire/requests.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

struct CoordinatorOptions {
  int slots = 0;                // cores of the local worker; 0: all that this process may use
  bool local = false;           // run everything on this machine, whatever scheduler the study asks for
  double fence_s = 0;           // of the tests: how long a worker may be silent; 0: Timing's
  bool listen = false;          // for workers and questions of other hosts, whatever the study says
  bool zero_workers = false;    // complete every task without running it (benchmarks)
  double zero_failures = 0;     // with zero_workers: the fraction that fails, each end told by itself
  std::uint64_t max_range = 0;  // tasks a lease at most; 0: as the scheduler likes
  bool resumed = false;
  bool keep_going = false;                  // a hard failure (exit code 102) does not end the campaign
  std::optional<wire::RetryRequest> retry;  // before anything runs
  RunAgain run_again;                       // likewise
  double time_limit_s = 0;                  // then drain; 0: none
  double status_interval_s = 0.25;
  // Of a campaign whose workers run on all nodes of the allocation that this process was started in.
  std::optional<batch::AllocationAround> around;
  Home home;                           // of a campaign whose coordinator lives in its allocations
  std::filesystem::path top;           // the campaign that this one follows on, for its next coordinators
  std::optional<wire::Request> first;  // a command, before anything runs: for a campaign that nobody runs
};

// Called from the coordinator's thread: every status_interval_s, and once at the end.
using StatusSink = std::function<void(const CampaignStatus&)>;

struct CoordinatorEnd {
  ExitCode code = ExitCode::ok;  // ok, tasks_failed, interrupted
  bool asked_to_end = false;     // by a signal, the time limit, a verb or a task: nothing is to follow
  bool handed_over = false;      // another process goes on with it
};

// Runs the campaign in `plan.campaign()`, whose database exists, until it has ended or is interrupted.
// SIGINT once (or the time limit): nothing new is started, what runs may finish, training writes a
// checkpoint; SIGINT twice, or SIGTERM: what runs is ended (it will run again). SIGHUP is ignored: a lost
// terminal does not end a campaign. Throws Error for busy, a damaged or full database.
CoordinatorEnd run_coordinator(const specs::Plan& plan, const CoordinatorOptions& options,
                               const StatusSink& sink);

}  // namespace wflow::engine
