// SPDX-License-Identifier: Apache-2.0
// The worker agent's logic without I/O: events in, actions out; the counterpart of
// engine/coordinate/machine.h. It includes no socket, clock, process or database header
// (tests/includes_test.py checks the whole closure of its includes). agent.cc turns sockets, signals, child
// processes and the journal into events and carries out the actions; tests/simulation does the same with
// virtual ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/plain_types.h"
#include "engine/wire/messages.h"
#include "specs/plan/template.h"
#include "workers/agent/link.h"
#include "workers/execute/resources.h"

namespace wflow::workers {

using SlotId = std::size_t;

namespace event {

struct EndpointRead {  // answers LookUp; nothing: there is no endpoint file
  std::optional<CoordinatorAddress> address;
};
struct Connected {};       // answers Connect
struct ConnectionLost {};  // it could not be made, has ended, or a Send failed
struct Message {
  engine::wire::Message message;
};
struct SamplesOpened {  // answers OpenSamples
  std::optional<std::string> error;
};
struct TaskStarted {  // answers StartTask
  SlotId slot = 0;
};
struct TaskNotStarted {  // answers StartTask: nothing runs
  SlotId slot = 0;
  std::string why;
  // The disk is full, over quota, read-only or broken: no fault of the task, which is tried again later.
  bool disk_trouble = false;
};
// The process of a slot has ended and nothing of it is left; its slot is free once the actions are carried
// out. `results` says how its elements ended (sequence not set); `again` are parts of its lease that run
// again in smaller processes. Where the task was ended for EndCause::returned, both are empty unless it had
// ended by itself before the signal came, or had reported some of its elements; the machine gives back all
// elements that `results` does not name.
struct TaskEnded {
  SlotId slot = 0;
  engine::wire::Results results;
  std::vector<engine::wire::Lease> again;
};
// The task has ended well and its declared outputs are being looked at by another process: no time limit
// holds any more. The slot stays taken; TaskEnded follows.
struct TaskChecking {
  SlotId slot = 0;
};
struct TaskReports {  // what a running task reported
  SlotId slot = 0;
  std::vector<engine::wire::TaskEvent> events;
};
struct Terminate {};  // SIGTERM, SIGINT or SIGHUP
// Nobody would clean up after this process. The edge takes what has ended first (TaskEnded).
struct GuardianGone {};
// The end of the batch allocation that this worker runs in: it may be moved while it runs.
struct EndKnown {
  double steady_s = 0;
};
struct CampaignGone {};  // found by a LookUp: the campaign's directory was removed
struct JournalFailed {   // an AppendJournal did not reach the file, or what it is to be prepared for that
                         // failed
  std::string why;
  std::optional<engine::wire::Results> record;  // of that AppendJournal
};
// For how long a running task of a step with stall_timeout has printed nothing, reported nothing and used no
// CPU, in time in which this agent was there to see it.
struct TaskSilent {
  SlotId slot = 0;
  double silent_s = 0;
};
// How much memory running tasks have held at most, as far as it was looked at: of some slots.
struct TaskMemory {
  struct Held {
    SlotId slot = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Held> held;
};
// The end of a turn: whatever else has happened was told before. Results and heartbeats are sent, and tasks
// are started, in answer to it alone; due whenever wake_at_s() has come.
struct Time {};

}  // namespace event

using AgentEvent =
    std::variant<event::EndpointRead, event::Connected, event::ConnectionLost, event::Message,
                 event::SamplesOpened, event::TaskStarted, event::TaskNotStarted, event::TaskEnded,
                 event::TaskChecking, event::TaskReports, event::Terminate, event::GuardianGone,
                 event::EndKnown, event::CampaignGone, event::JournalFailed, event::TaskSilent,
                 event::TaskMemory, event::Time>;

enum class EndCause : std::uint8_t {
  time_limit,  // its result is EndReason::timed_out
  cancelled,   // its result is EndReason::cancelled
  stalled,     // its result is EndReason::stalled
  returned,    // no result: its elements went back to the coordinator, or the fence has passed
};

namespace action {

struct LookUp {};  // read the campaign's endpoint file
struct Connect {   // close the connection, if there is one, and make a new one
  CoordinatorAddress address;
};
struct Send {
  engine::wire::Message message;
};
// In the file (written, not synced) before any action that follows is carried out, and before the child that
// it tells of is reaped.
struct AppendJournal {
  engine::wire::Results record;
};
struct ClearJournal {};  // everything in it is acknowledged
// Another host will read the journal: it must see all of it. A Goodbye that follows is sent only where that
// has worked.
struct SyncJournal {};
// The fence that the coordinator has set, for the journal's header (engine/wire/worker_journal.h).
struct NoteLost {
  double lost_s = 0;
};
struct OpenSamples {
  std::string design;  // JSON of specs::SampleDesign
};
struct AddTemplate {
  specs::TaskTemplate task_template;
};
// TaskStarted or TaskNotStarted follows; TaskEnded where its marker says that it is done already
// (Lease::trust_from).
struct StartTask {
  SlotId slot = 0;
  engine::wire::Lease lease;  // of the elements of this process alone
  Share share;
};
struct EndTask {
  SlotId slot = 0;
  EndCause cause = EndCause::returned;
  bool kill = false;  // false: SIGTERM to its group; true: SIGKILL to all of its processes
};
// Kills all processes of this lease on this node, whoever has started them: of a task on several nodes, whose
// ranks are children of the allocation's launcher.
struct EndRanks {
  engine::wire::LeaseId lease = 0;
  std::string campaign;  // its directory, as tasks have it in WFLOW_CAMPAIGN
};
struct InterruptTask {  // SIGUSR1: a training writes a checkpoint and ends; it goes on later
  SlotId slot = 0;
};
struct FollowEvents {
};  // look for what running tasks have reported and what they do: TaskReports, TaskSilent, TaskMemory
// For the guardian, which kills an agent that is frozen past its fence. Infinity: no fence.
struct SetFence {
  double steady_s = 0;
};
struct Log {
  LogLevel level = LogLevel::info;
  std::string text;
};
struct Exit {
  int code = 0;  // wflow::ExitCode
};

}  // namespace action

using AgentAction =
    std::variant<action::LookUp, action::Connect, action::Send, action::AppendJournal, action::ClearJournal,
                 action::SyncJournal, action::NoteLost, action::OpenSamples, action::AddTemplate, action::StartTask,
                 action::EndTask, action::EndRanks, action::InterruptTask, action::FollowEvents,
                 action::SetFence, action::Log, action::Exit>;

struct AgentOptions {
  std::string worker, group, campaign_token, version;
  ProcessIdentity guardian, agent;
  std::uint64_t started_by = 0;  // epoch of the coordinator that started it; 0: somebody else did
  std::size_t slots = 1;
  Capacity capacity;
  std::string allocation;     // as in wire::Hello
  std::string node;           // as in wire::Hello
  int incarnation = 0;        // how often the scheduler has started that allocation's job before
  double idle_timeout_s = 0;  // ends after so long without work; 0: never
  double linger_s = 300;      // ends after so long without a coordinator, once nothing runs
  double grace_s = 5;         // between SIGTERM and SIGKILL
  double retry_s = 1;         // between two looks for the coordinator
  double event_period_s = 0.2;
  bool trace = false;        // each event and action is a Log at LogLevel::trace, too
  bool zero = false;         // benchmarks: every lease is over at once and nothing is run
  double zero_failures = 0;  // of these, the fraction that fails (by a hash of array, element and attempt)
};

class AgentMachine {
 public:
  AgentMachine(AgentOptions options, Now now);
  ~AgentMachine();

  // Looks at the fence before anything else: an agent that was frozen acts on its deadline first.
  void handle(Now now, AgentEvent event);
  // What is to be done, in this order. Carry out all of it before the next handle().
  std::vector<AgentAction> take_actions();
  // An event::Time is due then at the latest (steady_s).
  double wake_at_s() const;
  // Whether ends of tasks should wait: the journal is large, and the coordinator has not committed what is in
  // it. The edge then leaves ended children unreaped for the moment.
  bool journal_full() const;
  // The number of the batch that is being filled: what a guardian adds to the journal gets the next one.
  std::uint64_t open_sequence() const;
  std::size_t running() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wflow::workers
