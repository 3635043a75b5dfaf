// SPDX-License-Identifier: Apache-2.0
// The worker agent's logic without I/O: events in, actions out; the counterpart of
// engine/coordinate/machine.h. It includes no socket, clock, process or database header
// (tests/includes_test.py checks the whole closure of its includes). agent.cc turns sockets, signals, child
// processes and the journal into events and carries out the actions; tests/simulation does the same with
// virtual ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

struct EndpointRead {  // answers LookUp; no address: there is no endpoint file
  std::optional<CoordinatorAddress> address;
};
struct Connected {};       // answers Connect
struct ConnectionLost {};  // the connection could not be made, has ended, or a Send failed
struct Message {
  engine::wire::Message message;
};
struct SamplesOpened {  // answers OpenSamples
  std::optional<std::string> error;
};
struct TaskStarted {  // answers StartTask
  SlotId slot = 0;
};
struct TaskNotStarted {  // answers StartTask: no process runs
  SlotId slot = 0;
  std::string why;
  // The disk is full, over quota, read-only or broken. The task is not at fault; the machine tries it again
  // later.
  bool disk_trouble = false;
};
// The process of a slot has ended and none of its processes is left; the slot is free once the actions are
// carried out. `results` holds how its elements ended (sequence not set); `again` are parts of its lease that
// run again in smaller processes. If the task was ended for EndCause::returned, both are empty unless it had
// ended by itself before the signal came, or had reported some of its elements. The machine returns all
// elements that `results` does not name.
struct TaskEnded {
  SlotId slot = 0;
  engine::wire::Results results;
  std::vector<engine::wire::Lease> again;
};
// The task has succeeded and another process checks its declared outputs: no time limit applies any more. The
// slot stays taken; TaskEnded follows.
struct TaskChecking {
  SlotId slot = 0;
};
struct TaskReports {  // events that a running task reported
  SlotId slot = 0;
  std::vector<engine::wire::TaskEvent> events;
};
struct Terminate {};  // SIGTERM, SIGINT or SIGHUP
// No process would clean up after this one. The edge first delivers the tasks that have ended (TaskEnded).
struct GuardianGone {};
// The end of the worker's batch allocation. The scheduler may move it while the allocation runs.
struct EndKnown {
  double steady_s = 0;
};
struct CampaignGone {};  // answers LookUp: the campaign's directory was removed
struct JournalFailed {   // an AppendJournal, ClearJournal or NoteLost failed
  std::string why;
  std::optional<engine::wire::Results> record;  // the record of the failed AppendJournal
};
// The time for which a running task of a step with stall_timeout has printed nothing, reported nothing and
// used no CPU. Time in which the agent itself was stopped does not count.
struct TaskSilent {
  SlotId slot = 0;
  double silent_s = 0;
};
// The peak memory of running tasks, as far as it was sampled; not of all slots.
struct TaskMemory {
  struct Held {
    SlotId slot = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Held> held;
};
// The end of a turn, after all other events of the turn. Only in answer to it does the machine send results
// and heartbeats and start tasks. Due at wake_at_s() at the latest.
struct Time {};

}  // namespace event

using AgentEvent = std::variant<event::EndpointRead, event::Connected, event::ConnectionLost, event::Message,
                                event::SamplesOpened, event::TaskStarted, event::TaskNotStarted,
                                event::TaskEnded, event::TaskChecking, event::TaskReports, event::Terminate,
                                event::GuardianGone, event::EndKnown, event::CampaignGone,
                                event::JournalFailed, event::TaskSilent, event::TaskMemory, event::Time>;

enum class EndCause : std::uint8_t {
  time_limit,  // its result is EndReason::timed_out
  cancelled,   // its result is EndReason::cancelled
  stalled,     // its result is EndReason::stalled
  returned,    // no result: the elements went back to the coordinator, or the fence has passed
};

namespace action {

struct LookUp {};  // read the campaign's endpoint file
struct Connect {   // close the present connection, if any, and make a new one
  CoordinatorAddress address;
};
struct Send {
  engine::wire::Message message;
};
// Write the record (without fsync) before any later action, and before the child that it describes is
// reaped.
struct AppendJournal {
  engine::wire::Results record;
};
struct ClearJournal {};  // all results in it are acknowledged
// Make the whole journal visible to other hosts, one of which will read it. Send a Goodbye that follows only
// if this has succeeded.
struct SyncJournal {};
// The fence that the coordinator has set, for the journal's header (engine/wire/worker_journal.h).
struct NoteLost {
  double lost_s = 0;
};
struct OpenSamples {
  specs::SampleDesign design;
};
struct AddTemplate {
  specs::TaskTemplate task_template;
};
// TaskStarted or TaskNotStarted follows; TaskEnded if a marker shows that the task is already done
// (Lease::trust_from).
struct StartTask {
  SlotId slot = 0;
  engine::wire::Lease lease;  // names the elements of this process only
  Share share;
};
struct EndTask {
  SlotId slot = 0;
  EndCause cause = EndCause::returned;
  bool kill = false;  // false: SIGTERM to its group; true: SIGKILL to all of its processes
};
// Kill all processes of this lease on this node, whatever process started them: the ranks of a task on
// several nodes are children of the allocation's launcher.
struct EndRanks {
  engine::wire::LeaseId lease = 0;
  std::string campaign;  // the directory of the campaign, as in the tasks' WFLOW_CAMPAIGN
};
struct InterruptTask {  // send SIGUSR1: a training writes a checkpoint and ends; it continues later
  SlotId slot = 0;
};
struct FollowEvents {
};  // read the reports and the usage of running tasks: TaskReports, TaskSilent, TaskMemory
// The fence, for the guardian, which kills an agent that is frozen past it. Infinity: no fence.
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
                 action::SyncJournal, action::NoteLost, action::OpenSamples, action::AddTemplate,
                 action::StartTask, action::EndTask, action::EndRanks, action::InterruptTask,
                 action::FollowEvents, action::SetFence, action::Log, action::Exit>;

// Returns the results of a lease without running its tasks. Given with Unix time.
using CompleteLease = std::function<engine::wire::Results(const engine::wire::Lease& lease, double unix_s)>;

struct AgentOptions {
  std::string worker, group, campaign_token, version;
  ProcessIdentity guardian, agent;
  std::uint64_t started_by =
      0;  // epoch of the coordinator that started the worker; 0: by hand or a scheduler
  std::size_t slots = 1;
  Capacity capacity;
  std::string allocation;     // as in wire::Hello
  std::string node;           // as in wire::Hello
  int incarnation = 0;        // number of earlier starts of the allocation's job
  double idle_timeout_s = 0;  // the worker ends after this time without work; 0: never
  double linger_s = 300;      // the worker ends after this time without a coordinator, once nothing runs
  double grace_s = 5;         // time between SIGTERM and SIGKILL
  double retry_s = 1;         // time between two reads of the endpoint file
  double event_period_s = 0.2;
  bool trace = false;      // also emits each event and action as a Log at LogLevel::trace
  CompleteLease complete;  // set by benchmarks: completes each lease at once, and no task runs
};

class AgentMachine {
 public:
  AgentMachine(AgentOptions options, Now now);
  ~AgentMachine();

  // Checks the fence first, so that an agent that was frozen acts on its deadline before anything else.
  void handle(Now now, AgentEvent event);
  // The actions, in order. Carry out all of them before the next handle().
  std::vector<AgentAction> take_actions();
  // The latest time for the next event::Time (steady_s).
  double wake_at_s() const;
  // True while ends of tasks should wait, because the journal is large and the coordinator has not committed
  // its results. The edge then leaves ended children unreaped.
  bool journal_full() const;
  // The number of the open batch. A guardian adds its results to the journal under the next number.
  std::uint64_t open_sequence() const;
  std::size_t running() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// An event or action as one line of text, for logs at the level `trace` and for the simulator.
std::string describe(const AgentEvent& event);
std::string describe(const AgentAction& action);

}  // namespace wflow::workers
