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
// A Send could not be delivered: the connection is gone or its queue is full. What else these actions send to
// that peer must not be sent then: it would arrive without what was before it. Handle this before any
// message.
struct Undelivered {
  PeerId peer;
};
struct WorkerStarted {  // answers action::StartWorker
  std::string group;
  ProcessIdentity guardian;
};
// A watched process has ended. Also the answer to a Watch of a process that does not live.
struct ProcessEnded {
  ProcessIdentity process;
};
// Answers action::ReadJournal. No record is lost silently: `damaged` says what could not be read.
struct JournalRead {
  std::string worker;
  std::vector<wire::Results> results;
  std::optional<std::string> damaged;
  std::size_t orphans = 0;                   // processes of its tasks that were ended
  std::vector<RunningElement> running = {};  // when its agent was killed, as its guardian has written
};
// Answers action::LookAtJournal where its guardian has written that no process of the worker is left.
struct JournalEnded {
  std::string worker;
};
struct CommitFinished {};  // the batch of the last Commit is on disk
// It could not be written: the disk is full, over quota, read-only or broken. The edge goes on trying until
// CommitFinished.
struct CommitWaits {
  std::string why;
};
struct Retry {  // answers action::ResolveRetry
  PeerId peer;  // empty for MachineOptions::retry
  std::vector<std::pair<ArrayId, Range>> parts;
  std::optional<std::string> error;  // why the request means nothing: no such step
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
// Answers action::MeasureOutputs: bytes, or nothing where the files are not all there.
struct OutputsMeasured {
  ArrayId array = 0;
  std::optional<std::uint64_t> bytes;
};
// workers_left: those of the coordinator's own allocation, whose script says so.
enum class SignalKind : std::uint8_t { interrupt, terminate, hangup, workers_left };
struct Signal {
  SignalKind kind;
};
struct Time {};  // nothing but the time

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
struct StartWorker {  // of this machine's pool
  std::string group;
  int slots = 1;
};
struct Watch {  // of this process table only: an event when it ends, at once when it does not live
  ProcessIdentity process;
};
struct Kill {
  ProcessIdentity process;
  int signal = 0;  // SIGTERM, SIGCONT or SIGKILL, through a pidfd after a look at the start time
};
// Ends what the worker's tasks left behind on this machine, then reads its journal: nobody writes it any
// more. `here`: its processes stood in this process table.
struct ReadJournal {
  std::string worker;
  bool here = false;
};
// Of a worker of another process table that is silent: a guardian whose agent was killed says so in the
// journal.
struct LookAtJournal {
  std::string worker;
};
// Everything in it is committed. Also the worker's directory.
struct RemoveJournal {
  std::string worker;
};
// A question that reads only. It is asked for once everything that the answer may be about is on disk, and
// before any other Commit: the edge answers from scheduler() and the store.
struct AnswerQuery {
  PeerId peer;
  wire::Query query;
};
// Which parts the request means (its exit codes are in the store). Answered by event::Retry.
struct ResolveRetry {
  PeerId peer;
  wire::RetryRequest request;
};
// How large the files are that a conversion reads of this element, and then deletes.
struct MeasureOutputs {
  ArrayId array = 0;
  Element element = 0;
};
// Calls of a batch scheduler: none is waited for. What is submitted is on disk as an intention.
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
// The campaign can't go on. Every worker here is to be ended; the text is for people.
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
  draining,    // nothing new starts, what runs may finish
  stopping,    // what runs is ended; it will run again
  dismissing,  // all is done or given back: workers say Goodbye, the last batch is committed
  ended,
  handing_over,  // nothing new is leased; what runs goes on, for the campaign's next coordinator
};

struct LocalGroup {  // whose worker this machine starts
  std::string name;
  int slots = 1;
};

// A worker that an earlier coordinator knew and that has not ended, or whose journal is there.
struct KnownWorker {
  std::string id, group;
  ProcessIdentity guardian, agent;
  double lost_s = 0;     // its fence
  bool journal = false;  // there is one
  // Somebody holds the lock of its journal. Counts only where its processes are not known: a worker without a
  // row, which holds no lease. One that lives says Hello by itself.
  bool locked = false;
  bool row = true;     // the database has one of it that has not ended
  bool ended = false;  // its journal says that none of its processes is left
};

// Bugs that the simulator must find: one switch each, set by tests/simulation alone.
struct PlantedBugs {
  bool acknowledge_before_commit = false;
  bool lease_before_fence = false;
  bool forget_leases_at_hand_over = false;
  bool fill_the_disk = false;           // max_disk holds nothing back
  bool release_only_what_fits = false;  // max_disk, without one open block where none fits
};

// What is recorded as done and is to run again, because its MERLIN_FINISHED is gone.
struct RunAgain {
  std::vector<std::pair<ArrayId, Range>> parts;
  bool below = false;  // and what depends on it
};

// Of a campaign whose coordinator lives in its batch allocations and moves from one to the next.
struct Home {
  bool moves = false;
  // The token of the one it runs in. Where that is none of the campaign's, it submits what is wanted and then
  // leaves the rest to the coordinators of those.
  std::string allocation;
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
  Home home;
  bool keep_going = false;
  bool resumed = false;
  bool trace = false;           // each event and action is a Log at LogLevel::trace, too
  double time_limit_s = 0;      // then drain; 0: none
  std::uint64_t max_range = 0;  // elements a lease at most; 0: as the scheduler likes
  Timing timing;
  PlantedBugs planted;
  // Both before anything else runs, once recovery is over.
  std::optional<wire::RetryRequest> retry;
  RunAgain run_again;
};

class CoordinatorMachine {
 public:
  // `plan` outlives the machine. `restored` is what earlier coordinators committed, `known` their workers.
  CoordinatorMachine(const specs::Plan& plan, std::vector<ArraySpec> arrays, MachineOptions options,
                     const store::Restored& restored, const std::vector<KnownWorker>& known, Now now);
  ~CoordinatorMachine();

  // Never throws for what a peer or client sends: that message alone fails, counted in refused_messages().
  void handle(Now now, CoordinatorEvent event);
  // Decides what follows from the events since the last call (several may be handled at once, to make larger
  // batches and messages), and says what is to be done, in this order. Carry out all of it before the next
  // handle(). To be called once after construction, too.
  std::vector<CoordinatorAction> take_actions();
  // An event::Time is due then at the latest (steady_s).
  double wake_at_s() const;

  Phase phase() const;
  bool ended() const { return phase() == Phase::ended; }
  // Every element has ended, as against interrupted. Valid at any time.
  bool campaign_over() const;
  // Why nothing is leased: the database can't be written for now. Empty: it can.
  const std::string& disk_trouble() const;
  // It has ended for the campaign's next coordinator to go on.
  bool handed_over() const;
  // Steps in which too many tasks have failed, by their place in the plan, and why: nothing of them is
  // leased.
  const std::map<std::size_t, std::string>& held() const;
  // Steps of which some tasks wait until conversions have deleted files (max_disk), and how full the disk is.
  std::map<std::size_t, std::string> held_back() const;
  // By a signal, the time limit, a request or a task: no campaign is to follow on this one.
  bool asked_to_end() const;
  const Scheduler& scheduler() const;
  std::uint64_t refused_messages() const;

  struct PeerView {  // for the status
    std::string worker, host;
    double silent_s = 0;
    std::vector<wire::RunningElement> running;
    std::uint64_t ended = 0;  // elements that ended on it since it joined this coordinator
  };
  std::vector<PeerView> peers(double steady_s) const;
  // The campaign's batch allocations; `ended`: also those that have ended.
  wire::AllocationsAnswer allocations(double unix_s, bool ended) const;
  // What a task of the array that could run waits for, where that is an allocation; else empty.
  std::string waits_for(ArrayId array, double unix_s) const;

 private:
  struct Impl;  // or plain members: the implementer's choice
  std::unique_ptr<Impl> impl_;
};

}  // namespace wflow::engine
