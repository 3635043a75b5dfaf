// SPDX-License-Identifier: Apache-2.0
// The messages between coordinator, workers and status clients: plain values. encode() and decode()
// (codec.cc) convert them to bytes (docs/formats/wire.md), transport.h carries them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
inline constexpr std::uint32_t kProtocol = 11;

// ---- worker to coordinator

struct Hello {
  std::uint32_t protocol = kProtocol;
  std::string version;
  std::string
      campaign;  // token of the campaign (in its key file); the coordinator refuses a worker of another one
  std::string worker;            // unique for ever: "<host>-<pid>-<random>"
  std::string group;             // worker group of the spec
  ProcessIdentity guardian;      // killing it ends the worker and its tasks
  ProcessIdentity agent;         // the process that sends messages: a guardian may die before it
  std::uint64_t started_by = 0;  // epoch of the coordinator that started it; 0: another process did
  std::int32_t cores = 0;
  std::int32_t gpus = 0;
  std::int64_t memory_bytes = 0;
  // Token of its batch allocation, "slurm:1234" in one that the coordinator has not submitted; empty: it is
  // in none.
  std::string allocation;
  std::string node;              // its node's name for the allocation's launcher
  std::int32_t incarnation = 0;  // earlier starts of that allocation's job by the scheduler
  std::optional<double> left_s;  // it can run tasks for so long; empty: no end is known
  std::vector<Lease> held;       // remaining leases from before a reconnection
};

// One durable batch: the worker keeps it until acknowledged by sequence number.
struct Results {
  std::uint64_t sequence = 0;
  std::vector<DoneRun> done;
  std::vector<Outcome> outcomes;  // all ends except plain successes
  std::vector<TaskEvent> events;
  std::vector<TaskUsage> usage = {};  // for executions that took a millisecond or more, or failed
};

struct Heartbeat {
  std::uint64_t number = 0;  // 1, 2, ... on every connection; the coordinator's Pulse gives the last one back
  std::uint64_t queued = 0;  // leased elements not started yet
  std::vector<RunningElement> running;
  std::optional<double> left_s = {};  // as in Hello: a scheduler may change an allocation's end
};

struct Goodbye {  // drained or stopped: it holds no lease any more
  std::string reason;
};

// ---- coordinator to worker

struct Welcome {
  std::string campaign_directory;
  std::optional<specs::SampleDesign> samples;
  double heartbeat_s = 1;
  // The fence. A worker whose last answered heartbeat was *sent* so long ago kills its tasks and drops its
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

struct Revoke {  // give back elements that have not started; kill running ones with kill_running
  // Each: the elements [first, first + count) of lease `id`. With `nodes`: kill all processes of the lease on
  // this node, whichever worker has started them.
  std::vector<Lease> leases;
  bool all = false;  // all leases of the worker, instead of `leases`
  bool kill_running = false;
};

struct Drain {};  // finish running tasks, give back the rest, send Goodbye

struct Pulse {                  // the coordinator lives
  std::uint64_t heartbeat = 0;  // the last one that it has received on this connection
  std::uint32_t gangs = 0;      // tasks on several nodes, one of which is this worker's: it must not leave
  double gather_s = 0;          // results may wait so long for others while the worker has tasks to start
  bool watched = false;         // a dashboard is open: heartbeats report the memory of running tasks
};

// A message could not be delivered, or came from a connection without a Hello: send Hello again, so that both
// sides agree on the worker's leases.
struct Identify {};

// ---- worker's answer to Revoke, Drain: elements that will not run under this lease

struct Returned {
  std::vector<Lease> leases;
};

// ---- users' clients: Query (requests.h) and Answer (answers.h)

using Message = std::variant<Hello, Results, Heartbeat, Goodbye, Welcome, Refuse, Templates, Leases,
                             Acknowledge, Revoke, Drain, Pulse, Returned, Query, Answer, Identify>;

// Both ends refuse larger messages, and so does the socket (ZMQ_MAXMSGSIZE).
inline constexpr std::size_t kMaxMessageBytes = 64 << 20;

// MessagePack arrays: [kind, field, field, ...]; docs/formats/wire.md has the layout.
std::string encode(const Message& message);

// Empty for bytes that are no message of this protocol. Never throws; allocates no more than a small multiple
// of bytes.size() (it checks hostile lengths against the bytes that are left).
std::optional<Message> decode(std::string_view bytes);

// One line of text, for logs at the level `trace` and for the simulator (describe.cc). Long lists are cut.
// Text of a peer is cut and has no control characters.
std::string describe(const Message& message);
std::string describe(const Lease& lease);
std::string describe(const Results& results);

}  // namespace wflow::engine::wire
