// SPDX-License-Identifier: Apache-2.0
// The implementation of AgentMachine. machine.cc: events, the connection to the coordinator, results, the
// fence and the end of the worker; machine_tasks.cc: leases, running tasks and the end of the allocation.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "workers/agent/lease_queue.h"
#include "workers/agent/link.h"
#include "workers/agent/machine.h"
#include "workers/agent/outbox.h"

namespace wflow::workers {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr double kDiskWait_s = 1;  // time before the next attempt after the disk refused a write

struct AgentMachine::Impl {
  enum class Mode : std::uint8_t {
    working,
    draining,  // finishes running tasks, takes no new ones
    ending,    // after a signal or an error: ends running tasks
  };
  // The properties of a task array that the machine uses.
  struct Array {
    specs::Resources resources;
    double timeout_s = 0;
    double stall_timeout_s = 0;
    std::uint64_t bundle = 0;
    std::vector<std::uint64_t> sample_starts;  // bundles begin at these samples, too
    bool training = false;
  };
  struct Task {
    enum class Stage : std::uint8_t { free, starting, running, checking };
    Stage stage = Stage::free;
    engine::wire::Lease lease;  // names the elements of this process only
    Share share;
    double started_unix_s = 0;
    std::uint64_t memory_bytes = 0;  // the sampled peak
    double end_by_s = kNever;        // its time limit
    double kill_at_s = kNever;       // time of SIGKILL, after SIGTERM
    std::optional<EndCause> ending;
    bool killed = false;
  };

  Impl(AgentOptions&& given, Now start);

  void emit(AgentAction action) { actions.push_back(std::move(action)); }
  void send(engine::wire::Message message) { emit(action::Send{std::move(message)}); }
  void log(LogLevel level, std::string text) { emit(action::Log{level, std::move(text)}); }
  void trace(const AgentEvent& event);
  void trace_actions();

  // machine.cc
  void on(event::EndpointRead& read);
  void on(event::Connected&);
  void on(event::ConnectionLost&);
  void on(event::Message& message);
  void on(event::SamplesOpened& opened);
  void on(event::TaskStarted& started);
  void on(event::TaskNotStarted& refused);
  void wait_for_disk(const engine::wire::Lease& lease, const std::string& why);
  void on(event::TaskEnded& ended);
  void on(event::TaskChecking& checking);
  void on(event::TaskReports& reports);
  void on(event::Terminate&);
  void on(event::GuardianGone&);
  void on(event::EndKnown& known);
  void on(event::CampaignGone&);
  void on(event::JournalFailed& failed);
  void on(event::TaskSilent& silent);
  void on(event::TaskMemory& memory);
  void write_journal_again();
  void note_disk_trouble(const engine::wire::Results& results);
  void on(event::Time&);
  template <class T>
  void hear(T&) {}  // ignores messages that no coordinator sends
  void hear(engine::wire::Refuse& refuse);
  void hear(engine::wire::Drain&);
  void quit(ExitCode code, std::string why);
  void decide_end();
  bool everything_reported() const;
  void decide_to_leave();
  void leave();
  void say_goodbye();
  double idle_end_s() const;
  double linger_s() const;
  double linger_end_s() const;
  double wake_at_s() const;
  double end_wake_s() const;

  // machine.cc: the coordinator
  void hear(engine::wire::Identify&);
  void hear(engine::wire::Welcome& welcome);
  void hear(engine::wire::Pulse& pulse);
  void hear(engine::wire::Acknowledge& acknowledge);
  void say_hello();
  void set_fence() { emit(action::SetFence{fence.deadline_s()}); }
  void look_at_fence();
  void record(engine::wire::Results&& results);
  bool results_due() const;
  void send_results();
  void send_returned();
  void return_refused();
  void send_heartbeat();
  bool journal_full() const;

  // machine_tasks.cc: the end of the allocation
  std::optional<double> left_s() const;
  double stop_s() const;
  bool trains() const;
  void look_at_end();
  bool may_be_the_end(const engine::wire::Results& results) const;
  void hold(const engine::wire::Lease& lease, engine::wire::Results&& results);
  void settle_held(double until_s);
  void give_back_held();
  void give_back_rest(const engine::wire::Lease& lease, const event::TaskEnded& ended, double started_unix_s);
  void give_back_instead(const engine::wire::Lease& lease, engine::wire::Results&& results,
                         double started_unix_s);
  void record_end_of_allocation(const engine::wire::Lease& lease, double started_unix_s);

  // machine_tasks.cc: leases and running tasks
  void hear(engine::wire::Templates& templates);
  void hear(engine::wire::Leases& leases);
  void hear(engine::wire::Revoke& revoke);
  bool takes_leases() const { return mode == Mode::working && !fence.passed(now.steady_s); }
  void give_back(std::vector<engine::wire::Lease> leases);
  void refuse(std::vector<engine::wire::Lease> leases);
  static specs::Resources resources_of(const Array& array, const engine::wire::Lease& lease);
  bool next_fits() const;
  void start_ready();
  void start_next();
  void refuse(const engine::wire::Lease& lease, const std::string& why);
  void end_task(SlotId slot, EndCause cause, bool kill);
  void end_all(EndCause cause, bool kill);
  void enforce_limits();
  void free_slot(SlotId slot);
  std::vector<engine::wire::Lease> held() const;
  std::vector<engine::wire::RunningElement> running_elements() const;
  bool holds_anything() const;
  double next_limit_s() const;
  std::size_t running() const { return tasks.size() - free_slots.size(); }

  AgentOptions options;
  Now now;
  std::vector<AgentAction> actions;
  CoordinatorLink link;
  Fence fence;
  Outbox outbox;
  LeaseQueue queue;
  ResourcePool pool;
  std::map<engine::wire::ArrayId, Array> arrays;
  std::vector<Task> tasks;  // by slot
  std::vector<SlotId> free_slots;
  std::vector<engine::wire::Lease> returned;  // not sent yet
  std::optional<specs::SampleDesign> samples;
  std::vector<engine::wire::Lease> refused;  // returned with the next heartbeat
  bool refuses = false;                      // it has refused some since the last heartbeat
  std::string campaign;                      // directory of the campaign, as in the Welcome
  Mode mode = Mode::working;
  std::string reason;  // why the worker ends
  // The result of running tasks if the allocation ends; no value if the worker ends for another reason.
  std::optional<engine::wire::EndReason> allocation_end;
  ExitCode exit_code = ExitCode::ok;
  std::size_t journal_bytes = 0;  // approximate
  double noted_lost_s = 0;
  double last_busy_s;
  bool watched = false;  // set by a Pulse: heartbeats contain the memory of tasks
  bool helps = false;    // set by a Pulse: ranks of tasks on several nodes run here, too
  // Ends of tasks that may be due to the end of the allocation: a scheduler signals all processes of the
  // allocation, and the agent may see the end of a task before its own signal.
  struct Held {
    engine::wire::Lease lease;
    engine::wire::Results results;
    double until_s = 0;
  };
  std::vector<Held> held_back;
  double ends_s = kNever;        // end of the allocation, steady
  double end_known_s = kNever;   // when ends_s was first set
  double no_start_before_s = 0;  // set after a failed write on the disk
  bool disk_trouble = false;     // a warning about the disk was logged
  double next_heartbeat_s = 0;
  double next_events_s = 0;
  double leave_by_s = kNever;
  bool flush = false;  // at a hand-over: sends all results before the first heartbeat
  bool journal_failed = false;
  bool has_started = false;  // a task has run since the start of the worker
  // Results that could not be written to the journal. No task starts until the journal or the coordinator has
  // them.
  std::vector<engine::wire::Results> unwritten;
  double write_again_s = 0;
  bool exited = false;
};

}  // namespace wflow::workers
