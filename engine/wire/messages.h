// SPDX-License-Identifier: Apache-2.0
// What coordinator, workers and status clients say to each other. Plain values; codec.h turns them into bytes
// (docs/formats/wire.md), transport.h carries them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/plain_types.h"
#include "engine/schedule/types.h"
#include "engine/wire/answers.h"
#include "engine/wire/requests.h"
#include "engine/wire/task_event.h"
#include "specs/plan/template.h"

namespace wflow::engine::wire {

// Part of the messages, and the scheduler's own (engine/schedule/types.h).
using engine::DoneRun;
using engine::EndReason;
using engine::Lease;
using engine::LeaseId;
using engine::Outcome;
using engine::RunningElement;
using engine::TaskUsage;

// Raised by one with every change that an older peer would misread.
inline constexpr std::uint32_t kProtocol = 8;

// ---- worker to coordinator

struct Hello {
  std::uint32_t protocol = kProtocol;
  std::string version;
  std::string campaign;      // token of the campaign (in its key file): a worker of another one is refused
  std::string worker;        // unique for ever: "<host>-<pid>-<random>"
  std::string group;         // worker group of the spec
  ProcessIdentity guardian;  // killing it ends the worker and its tasks
  ProcessIdentity agent;     // the process that talks: a guardian may die before it
  std::uint64_t started_by = 0;  // epoch of the coordinator that started it; 0: somebody else did
  std::int32_t cores = 0;
  std::int32_t gpus = 0;
  std::int64_t memory_bytes = 0;
  // Token of the batch allocation that it is of, "slurm:1234" in one that the coordinator has not submitted;
  // empty: it is in none.
  std::string allocation;
  std::string node;              // the name that the allocation's launcher knows its node by
  std::int32_t incarnation = 0;  // how often the scheduler has started that allocation's job before
  std::optional<double> left_s;  // it can run tasks for so long; nothing: no end is known
  std::vector<Lease> held;       // what is left of leases from before a reconnection
};

// One durable batch: the worker keeps it until acknowledged by sequence number.
struct Results {
  std::uint64_t sequence = 0;
  std::vector<DoneRun> done;
  std::vector<Outcome> outcomes;  // everything that is not plain success
  std::vector<TaskEvent> events;
  std::vector<TaskUsage> usage = {};  // of executions that took a millisecond or more, or failed
};

struct Heartbeat {
  std::uint64_t number = 0;  // 1, 2, ... on every connection; the coordinator's Pulse gives the last one back
  std::uint64_t queued = 0;  // leased elements not started yet
  std::vector<RunningElement> running;
  std::optional<double> left_s = {};  // as in Hello: a scheduler may change an allocation's end
};

struct Goodbye {  // drained or told to end: holds no lease any more
  std::string reason;
};

// ---- coordinator to worker

struct Welcome {
  std::string campaign_directory;
  std::string sample_design;  // JSON of specs::SampleDesign, empty without samples
  double heartbeat_s = 1;
  // The fence. A worker whose last answered heartbeat was *sent* so long ago kills its tasks and gives up its
  // leases. The coordinator leases them again only lost_s + margin after it *received* the last heartbeat
  // (engine/coordinate/timing.h), so that no task runs twice while clocks and pauses stay within the margin.
  double lost_s = 60;
};

struct Refuse {
  std::string reason;  // the worker ends
};

struct Templates {  // always before the first lease of the array
  std::vector<specs::TaskTemplate> templates;
};

struct Leases {
  std::vector<Lease> leases;
};

struct Acknowledge {
  std::uint64_t sequence = 0;  // this and all before are committed
};

struct Revoke {  // give back what has not started; kill what runs if asked
  // Each: the elements [first, first + count) of lease `id`. One with `nodes`: all processes of the lease on
  // this node are killed, whoever has started them.
  std::vector<Lease> leases;
  bool all = false;  // everything that the worker holds, instead of `leases`
  bool kill_running = false;
};

struct Drain {};  // finish what runs, give back the rest, say Goodbye

struct Pulse {                  // the coordinator lives
  std::uint64_t heartbeat = 0;  // the last one that it has received on this connection
  std::uint32_t gangs = 0;      // tasks on several nodes, one of which is this worker's: it must not leave
  double gather_s = 0;          // results may wait so long for others while the worker has tasks to start
  bool watched = false;         // a dashboard looks: heartbeats say how much memory running tasks hold
};

// A message could not be delivered, or came from a connection that said no Hello: say Hello again, so that
// both sides agree on what the worker holds.
struct Identify {};

// ---- worker's answer to Revoke, Drain: elements that will not run under this lease

struct Returned {
  std::vector<Lease> leases;
};

// ---- people's clients: Query (requests.h) and Answer (answers.h)

using Message = std::variant<Hello, Results, Heartbeat, Goodbye, Welcome, Refuse, Templates, Leases,
                             Acknowledge, Revoke, Drain, Pulse, Returned, Query, Answer, Identify>;

}  // namespace wflow::engine::wire
