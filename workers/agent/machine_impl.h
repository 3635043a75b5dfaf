// SPDX-License-Identifier: Apache-2.0
// The inside of AgentMachine. machine.cc: events and the worker's end; machine_link.cc: the coordinator,
// results, the fence; machine_walltime.cc: the end of the allocation; machine_tasks.cc: leases and what runs.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "workers/agent/fence.h"
#include "workers/agent/lease_queue.h"
#include "workers/agent/link.h"
#include "workers/agent/machine.h"
#include "workers/agent/outbox.h"

namespace wflow::workers {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr double kDiskWait_s = 1;  // before what the disk refused is tried again

struct AgentMachine::Impl {
  enum class Mode : std::uint8_t {
    working,
    draining,  // finishes what runs, takes nothing new
    ending,    // told by a signal: what ran is ended
  };
  // What the machine itself needs to know of a task array.
  struct Array {
    specs::Resources resources;
    double timeout_s = 0;
    double stall_timeout_s = 0;
    std::uint64_t bundle = 0;
    std::vector<std::uint64_t> sample_starts;  // where bundles begin, too
    bool training = false;
  };
  struct Task {
    enum class Stage : std::uint8_t { free, starting, running, checking };
    Stage stage = Stage::free;
    engine::wire::Lease lease;  // of the elements of this process alone
    Share share;
    double started_unix_s = 0;
    std::uint64_t memory_bytes = 0;  // the most so far, as far as it was looked at
    double end_by_s = kNever;   // its time limit
    double kill_at_s = kNever;  // after SIGTERM
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
  void hear(T&) {}  // what a coordinator does not say
  void hear(engine::wire::Refuse& refuse);
  void hear(engine::wire::Drain&);
  void quit(ExitCode code, std::string why);
  void decide_end();
  bool everything_told() const;
  void decide_to_leave();
  void leave();
  void say_goodbye();
  double idle_end_s() const;
  double linger_s() const;
  double linger_end_s() const;
  double wake_at_s() const;
  double end_wake_s() const;

  // machine_link.cc
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
  void send_heartbeat();
  bool journal_full() const;

  // machine_walltime.cc
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

  // machine_tasks.cc
  void hear(engine::wire::Templates& templates);
  void hear(engine::wire::Leases& leases);
  void hear(engine::wire::Revoke& revoke);
  bool takes_leases() const { return mode == Mode::working && !fence.passed(now.steady_s); }
  void give_back(std::vector<engine::wire::Lease> leases);
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
  std::vector<Task> tasks;  // one a slot
  std::vector<SlotId> free_slots;
  std::vector<engine::wire::Lease> returned;  // to be told
  std::string sample_design;
  std::string campaign;  // its directory, as the coordinator has it
  Mode mode = Mode::working;
  std::string reason;  // of the end
  // What the end of its allocation is for the tasks that run then; nothing where it ends for another reason.
  std::optional<engine::wire::EndReason> allocation_end;
  ExitCode exit_code = ExitCode::ok;
  std::size_t journal_bytes = 0;  // about
  double noted_lost_s = 0;
  double last_busy_s;
  bool watched = false;  // as the coordinator says: heartbeats say how much memory tasks hold
  bool helps = false;  // as the coordinator says: tasks on several nodes run here, too
  // Ends by SIGTERM, which may be that of the whole allocation: a scheduler signals all of its processes, and
  // the agent may see the end of a task before its own signal.
  struct Held {
    engine::wire::Lease lease;
    engine::wire::Results results;
    double until_s = 0;
  };
  std::vector<Held> held_back;
  double ends_s = kNever;        // of its allocation, steady
  double end_known_s = kNever;   // since when
  double no_start_before_s = 0;  // the disk is in trouble
  bool disk_trouble = false;     // and that was said
  double next_heartbeat_s = 0;
  double next_events_s = 0;
  double farewell_s = kNever;
  bool flush = false;  // a hand-over: everything that has ended goes out before the first heartbeat
  bool journal_failed = false;
  bool has_started = false;  // any task, ever
  // Results that the journal did not take. Until it has them, or the coordinator does, no task starts.
  std::vector<engine::wire::Results> unwritten;
  double write_again_s = 0;
  bool exited = false;
};

}  // namespace wflow::workers
