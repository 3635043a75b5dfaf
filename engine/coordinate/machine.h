// SPDX-License-Identifier: Apache-2.0
// The coordinator's logic without I/O: events in, actions out. It includes no socket, clock, process or
// database header (tests/includes_test.py checks the whole closure of its includes). coordinator.cc turns
// sockets, signals, processes and the database into events and carries out the actions;
// tests/simulation does the same with virtual ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/plain_types.h"
#include "engine/batch/pools.h"
#include "engine/coordinate/timing.h"
#include "engine/schedule/scheduler.h"
#include "engine/store/batch.h"
#include "engine/wire/messages.h"
#include "engine/wire/requests.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

using PeerId = std::string;  // a connection; a worker that reconnects has a new one

namespace event {

struct Message {
  PeerId peer;
  wire::Message message;
};
// A Send could not be delivered: the connection is gone or its queue is full. Do not send the other messages
// of these actions to that peer: they would arrive without the earlier ones. Handle this event before any
// message.
struct Undelivered {
  PeerId peer;
};
struct WorkerStarted {  // answers action::StartWorker
  std::string group;
  ProcessIdentity guardian;
};
// A watched process has ended. Also the answer to a Watch of a process that does not exist.
struct ProcessEnded {
  ProcessIdentity process;
};
// Answers action::ReadJournal. No record is lost silently: `damaged` describes what could not be read.
struct JournalRead {
  std::string worker;
  std::vector<wire::Results> results;
  std::optional<std::string> damaged;
  std::size_t orphans = 0;                   // processes of its tasks that the edge killed
  std::vector<RunningElement> running = {};  // when its agent was killed, as recorded by its guardian
};
// Answers action::LookAtJournal if the guardian has written that no process of the worker is left.
struct JournalEnded {
  std::string worker;
};
struct CommitFinished {};  // the batch of the last Commit is on disk
// It could not be written: the disk is full, over quota, read-only or broken. The edge retries until
// CommitFinished.
struct CommitWaits {
  std::string why;
};
struct Retry {  // answers action::ResolveRetry
  PeerId peer;  // empty for MachineOptions::retry
  std::vector<std::pair<ArrayId, Range>> parts;
  std::optional<std::string> error;  // why the request names no tasks: no such step
};
struct JobSubmitted {  // answers action::SubmitJob
  std::string token;
  batch::Submission submission;
};
struct JobsListed {  // answers action::QueryJobs
  std::string scheduler;
  batch::JobList list;
};
struct JobsCancelled {  // answers action::CancelJobs
  std::string scheduler;
  std::vector<std::string> ids;
  std::optional<std::string> error;
};
// Answers action::MeasureOutputs: bytes; empty unless all files exist.
struct OutputsMeasured {
  ArrayId array = 0;
  std::optional<std::uint64_t> bytes;
};
// workers_left: the script of the coordinator's own allocation reports that its workers have left.
enum class SignalKind : std::uint8_t { interrupt, terminate, hangup, workers_left };
struct Signal {
  SignalKind kind;
};
struct Time {};  // only the time has changed

}  // namespace event

using CoordinatorEvent =
    std::variant<event::Message, event::Undelivered, event::WorkerStarted, event::ProcessEnded,
                 event::JournalRead, event::JournalEnded, event::CommitFinished, event::CommitWaits,
                 event::Retry, event::JobSubmitted, event::JobsListed, event::JobsCancelled,
                 event::OutputsMeasured, event::Signal, event::Time>;

namespace action {

struct Send {
  PeerId peer;
  wire::Message message;
};
// Make the batch durable. One at a time: the next comes only after CommitFinished.
struct Commit {
  store::Batch batch;
};
struct StartWorker {  // in this machine's pool
  std::string group;
  int slots = 1;
};
struct Watch {  // in this process table only: an event when it ends, at once if it does not exist
  ProcessIdentity process;
};
struct Kill {
  ProcessIdentity process;
  int signal = 0;  // SIGTERM, SIGCONT or SIGKILL, through a pidfd after a look at the start time
};
// Ends the processes that the worker's tasks left on this machine, then reads its journal, to which no
// process writes any more. `here`: its processes were in this process table.
struct ReadJournal {
  std::string worker;
  bool here = false;
};
// Checks the journal of a silent worker of another process table: if its agent was killed, its guardian has
// written that there.
struct LookAtJournal {
  std::string worker;
};
// All of its records are committed. Also removes the worker's directory.
struct RemoveJournal {
  std::string worker;
};
// A read-only query. It comes once everything that the answer may cover is on disk, and before any other
// Commit: the edge answers from scheduler() and the store.
struct AnswerQuery {
  PeerId peer;
  wire::Query query;
};
// Finds the parts that the request names (exit codes are in the store). Answered by event::Retry.
struct ResolveRetry {
  PeerId peer;
  wire::RetryRequest request;
};
// Measures the files of this element that a conversion reads and then deletes.
struct MeasureOutputs {
  ArrayId array = 0;
  Element element = 0;
};
// Calls of a batch scheduler; the machine waits for none. The intention to submit is on disk before.
struct SubmitJob {
  std::string scheduler;
  batch::JobRequest job;
};
struct CancelJobs {
  std::string scheduler;
  std::vector<std::string> ids;
};
struct QueryJobs {  // all whose names begin with `prefix`
  std::string scheduler, prefix;
};
struct Log {
  LogLevel level = LogLevel::info;
  std::string text;
};
// The campaign cannot continue: end every worker on this machine, and print the text.
struct Fail {
  ExitCode code = ExitCode::system;
  std::string text;
};

}  // namespace action

using CoordinatorAction =
    std::variant<action::Send, action::Commit, action::StartWorker, action::Watch, action::Kill,
                 action::ReadJournal, action::LookAtJournal, action::RemoveJournal, action::AnswerQuery,
                 action::ResolveRetry, action::MeasureOutputs, action::SubmitJob, action::CancelJobs,
                 action::QueryJobs, action::Log, action::Fail>;

// running ─▶ draining ─▶ stopping ─▶ dismissing ─▶ ended      (one table of legal moves: machine.cc)
//    ├───────────┴───────────────────────▲           ▲
//    └─▶ handing_over ───────────────────┴───────────┘
enum class Phase : std::uint8_t {
  running,
  draining,    // nothing new starts, running tasks may finish
  stopping,    // running tasks are killed; they will run again
  dismissing,  // no lease is left: workers send Goodbye, the last batch is committed
  ended,
  handing_over,  // nothing new is leased; running tasks continue under the next coordinator
};

struct LocalGroup {  // this machine starts its worker
  std::string name;
  int slots = 1;
};

// A worker of an earlier coordinator that has not ended, or whose journal exists.
struct KnownWorker {
  std::string id, group;
  ProcessIdentity guardian, agent;
  double lost_s = 0;     // its fence
  bool journal = false;  // there is one
  // A process holds the lock of its journal. Used only if its processes are not known: a worker without a
  // row, which holds no lease. If it lives, it sends Hello by itself.
  bool locked = false;
  bool row = true;     // the database has a row of it that has not ended
  bool ended = false;  // according to its journal none of its processes is left
};

// Tasks recorded as done that run again, because their MERLIN_FINISHED is gone.
struct RunAgain {
  std::vector<std::pair<ArrayId, Range>> parts;
  bool below = false;  // and the tasks that depend on them
};

// The allocation in which the coordinator runs, of a campaign whose coordinator moves from one to the next.
struct OwnAllocation {
  bool moves = false;
  // Token of the allocation. Outside the campaign's allocations (on a login node) the coordinator submits the
  // wanted ones and leaves the rest to the coordinators in them.
  std::string token;
  double ends_unix_s = 0;  // 0: not known
};

struct MachineOptions {
  std::uint64_t epoch = 1;
  ProcessIdentity self;
  std::string token;  // a Hello of another campaign is refused
  std::vector<LocalGroup> local_groups;
  // Groups whose workers come from batch allocations, by name; their tokens begin with `job_prefix`.
  std::vector<batch::PoolSpec> pools;
  std::string job_prefix;
  batch::PoolTiming pool_timing;
  OwnAllocation own_allocation;
  bool keep_going = false;
  std::set<std::size_t> beyond;  // steps of the plan that wait for the next coordinator (run --until)
  bool resumed = false;
  bool trace = false;           // each event and action is a Log at LogLevel::trace, too
  double time_limit_s = 0;      // then drain; 0: none
  std::uint64_t max_range = 0;  // elements a lease at most; 0: the scheduler decides
  Timing timing;
  // Both apply before anything else runs, once recovery is over.
  std::optional<wire::RetryRequest> retry;
  RunAgain run_again;
};

class CoordinatorMachine {
 public:
  // `plan` outlives the machine. `restored`: the commits of earlier coordinators; `known`: their workers.
  CoordinatorMachine(const specs::Plan& plan, std::vector<ArraySpec> arrays, MachineOptions options,
                     const store::Restored& restored, const std::vector<KnownWorker>& known, Now now);
  ~CoordinatorMachine();

  // Never throws for a message of a peer or client: only that message fails, counted in refused_messages().
  void handle(Now now, CoordinatorEvent event);
  // Decides on the events since the last call (several may be handled at once, to make larger batches and
  // messages), and returns the actions in order. Carry out all of them before the next handle(). Call it once
  // after construction, too.
  std::vector<CoordinatorAction> take_actions();
  // The latest time for the next event::Time (steady_s).
  double wake_at_s() const;

  Phase phase() const;
  bool ended() const { return phase() == Phase::ended; }
  // True if every element has ended; false after an interruption. Valid at any time.
  bool campaign_over() const;
  // Why nothing is leased: the database cannot be written for now. Empty: it can.
  const std::string& disk_trouble() const;
  // True if it has ended so that the campaign's next coordinator continues.
  bool handed_over() const;
  // Paused steps, in which too many tasks have failed, by their place in the plan, with the reason. No
  // task of a paused step is leased.
  const std::map<std::size_t, std::string>& held() const;
  // Steps with tasks that wait until conversions have deleted files (max_disk), with the use of the disk.
  std::map<std::size_t, std::string> held_back() const;
  // True once nothing is left but the steps beyond the one at which this coordinator ends.
  bool ended_before_beyond() const;
  // True after a signal, the time limit, a request or a task asked for the end: no campaign follows this one.
  bool asked_to_end() const;
  const Scheduler& scheduler() const;
  std::uint64_t refused_messages() const;

  struct PeerView {  // one worker in the status; texts and running elements until the next event
    std::string_view worker, host;
    double silent_s = 0;
    std::span<const wire::RunningElement> running;
    std::uint64_t ended = 0;  // elements that ended on it under this coordinator
    bool scheduled = false;   // it has joined
  };
  std::vector<PeerView> peers(double steady_s) const;
  // There are so many workers that results, commits and acknowledgements wait for others.
  bool gathers() const;
  // The campaign's batch allocations; `ended`: include ended ones.
  wire::AllocationsAnswer allocations(double unix_s, bool ended) const;
  // The allocation for which a runnable task of the array waits, as text; empty if it waits for none.
  std::string waits_for(ArrayId array, double unix_s) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One line of text each, for logs at the level `trace` and for the simulator (describe.cc).
std::string describe(const CoordinatorEvent& event);
std::string describe(const CoordinatorAction& action);

}  // namespace wflow::engine
