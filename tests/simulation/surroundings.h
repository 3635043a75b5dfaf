// SPDX-License-Identifier: Apache-2.0
// What the simulated processes of a schedule share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/coordinate/timing.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/history.h"
#include "tests/simulation/hosts.h"
#include "tests/simulation/network.h"
#include "tests/simulation/planted.h"
#include "tests/simulation/studies.h"
#include "tests/simulation/tasks.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/trace.h"
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
  std::string token = "token";
  Planted planted = Planted::none;
  std::uint64_t lost_results = 0;  // the documented exception: ended, and not yet in a journal
};

inline std::string journal_path(const SimulatedStudy& study, const std::string& worker) {
  return study.plan.campaign().string() + "/.wflow/workers/" + worker + ".journal";
}

}  // namespace wflow::simulation
