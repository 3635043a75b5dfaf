// SPDX-License-Identifier: Apache-2.0
// The coordinator: one thread that carries messages to the scheduler and its decisions to workers and
// database.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/batch/allocation.h"
#include "engine/batch/pools.h"
#include "engine/coordinate/machine.h"
#include "engine/monitor/status.h"
#include "engine/wire/requests.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

struct CoordinatorOptions {
  int slots = 0;                // cores of the local worker; 0: all that this process may use
  bool local = false;           // run everything on this machine, whatever scheduler the study names
  double fence_s = 0;           // for tests: how long a worker may be silent; 0: Timing's value
  bool listen = false;          // for workers and queries of other hosts, whatever the study sets
  std::uint64_t max_range = 0;  // tasks a lease at most; 0: as the scheduler likes
  bool resumed = false;
  std::string until;  // a step: the steps that it does not need wait for the next coordinator; empty: none
  bool keep_going = false;                  // a hard failure (exit code 102) does not end the campaign
  std::optional<wire::RetryRequest> retry;  // before anything runs
  RunAgain run_again;                       // likewise
  double time_limit_s = 0;                  // then drain; 0: none
  double status_interval_s = 0.25;
  // Set if the workers run on all nodes of the allocation that this process was started in.
  std::optional<batch::AllocationAround> around;
  OwnAllocation own_allocation;        // set if the coordinator runs in the campaign's allocations
  std::filesystem::path top;           // the campaign that this one follows, for its next coordinators
  std::optional<wire::Request> first;  // a command for a campaign without a coordinator, before anything runs
};

// Called from the coordinator's thread: every status_interval_s, and once at the end.
using StatusSink = std::function<void(const CampaignStatus&)>;

struct CoordinatorEnd {
  ExitCode code = ExitCode::ok;  // ok, tasks_failed, interrupted
  bool asked_to_end = false;     // by a signal, the time limit, a request or a task: no campaign follows
  bool handed_over = false;      // another process continues it
};

// Runs the campaign in `plan.campaign()`, whose database exists, until it has ended or is interrupted.
// SIGINT once (or the time limit): no task starts, running tasks may finish, training writes a
// checkpoint; SIGINT twice, or SIGTERM: what runs is ended (it will run again). SIGHUP is ignored: a lost
// terminal does not end a campaign. Throws Error for busy, a damaged or full database.
CoordinatorEnd run_coordinator(const specs::Plan& plan, const CoordinatorOptions& options,
                               const StatusSink& sink);

// The study's pools as the coordinator submits them.

// True if the pool or group of this name has its workers in allocations of a scheduler.
bool wants_scheduler(const specs::Study& study, const std::string& group);
// The names of the schedulers of all such pools.
std::set<std::string> wanted_schedulers(const specs::Study& study);
// job_of() of engine/batch/pools.h makes each submission of them.
std::vector<batch::PoolSpec> pool_specs(const specs::Plan& plan);
// argv of the coordinator that waits in each allocation; it ends with `--allocation TOKEN`.
// `top`: the campaign that this one follows, or itself.
std::vector<std::string> coordinator_command(const std::filesystem::path& campaign,
                                             const std::filesystem::path& top, bool keep_going);
// The prefix of the names of all of the campaign's jobs, and of no other campaign's: seven characters.
std::string job_prefix(const std::filesystem::path& campaign, const std::string& token);

}  // namespace wflow::engine
