// SPDX-License-Identifier: Apache-2.0
// What the simulated processes of a schedule share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "engine/coordinate/timing.h"
#include "engine/wire/worker_journal.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/history.h"
#include "tests/simulation/hosts.h"
#include "tests/simulation/network.h"
#include "tests/simulation/planted.h"
#include "tests/simulation/tasks.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/vfs.h"
#include "workers/agent/machine.h"

namespace wflow::simulation {

// How likely the small mishaps are that need no schedule of their own.
struct Mishaps {
  double not_started = 0;
  double slow_launch = 0;
  double slow_commit = 0;
  double strange_message = 0;
  double slow_death = 0;           // a killed task takes a while to be gone
  double cut_between_actions = 0;  // part of kills that come between the actions of one decision
};

// The campaign's endpoint file.
struct Endpoint {
  workers::CoordinatorAddress address;
  std::uint64_t listener = 0;
};

struct Surroundings {
  std::uint64_t seed = 0;
  const SimulatedStudy& study;
  Timeline& timeline;
  Disk& disk;
  Vfs& vfs;
  Network& network;
  Hosts& hosts;
  History& history;
  const TaskScripts& scripts;
  FaultCounts& faults;
  Trace& trace;
  Draw draw;  // random numbers of the processes
  Mishaps mishaps;
  engine::Timing timing;
  std::optional<Endpoint> endpoint;
  LockFile lock_file;
  std::uint64_t acting = 0;  // epoch of the coordinator that has begun last
  ProcessIdentity acting_process;
  std::string token = "token";
  Planted planted = Planted::none;
  std::uint64_t lost_results = 0;  // the documented exception: ended, and not yet in a journal
};

using ResultId = std::tuple<engine::ArrayId, engine::wire::Element, engine::LeaseId>;

template <typename Visit>
void for_each_result(const engine::wire::Results& results, Visit visit) {
  for (const engine::wire::DoneRun& run : results.done) {
    for (std::uint64_t element = run.first; element < run.first + run.count; ++element)
      visit(ResultId{run.array, element, run.lease});
  }
  for (const engine::wire::Outcome& outcome : results.outcomes)
    visit(ResultId{outcome.array, outcome.element, outcome.lease});
}

// Reads a journal.
inline std::set<ResultId> results_in(std::string_view journal) {
  std::set<ResultId> found;
  for (const engine::wire::Results& record : engine::wire::parse_records(journal).results)
    for_each_result(record, [&](const ResultId& result) { found.insert(result); });
  return found;
}

inline std::string journal_path(const SimulatedStudy& study, const std::string& worker) {
  return study.plan.campaign().string() + "/.wflow/workers/" + worker + ".journal";
}

}  // namespace wflow::simulation
