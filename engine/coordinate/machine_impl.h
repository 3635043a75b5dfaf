// SPDX-License-Identifier: Apache-2.0
// The state of the coordinator machine, its workers, and the checks of their messages; for machine*.cc and
// checks.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/coordinate/machine.h"
#include "engine/coordinate/node_health.h"
#include "engine/schedule/graph.h"
#include "engine/schedule/scheduler.h"
#include "engine/wire/messages.h"

namespace wflow::engine {

//   awaited ──▶ joining ──▶ working ──▶ draining ──▶ gone
//      │           │           │           │          ▲
//      └───────────┴───────────┴───────────┴─▶ ending ┘
enum class WorkerState : std::uint8_t {
  awaited,  // from an earlier coordinator: it lives, or may live
  joining,  // it has sent Hello; its row is not durable yet, so it gets no lease
  working,
  draining,  // finishes its running tasks
  ending,    // its process has ended or its fence has passed; its journal is not read yet
  gone,
};
inline constexpr std::size_t kWorkerStates = 6;

constexpr std::string_view name_of(WorkerState state) {
  constexpr std::string_view kNames[kWorkerStates] = {"awaited",  "joining", "working",
                                                      "draining", "ending",  "gone"};
  return kNames[static_cast<std::size_t>(state)];
}

// The table of legal moves. A worker that is `ending` because it was silent may send Hello again.
constexpr bool may_move(WorkerState from, WorkerState to) {
  using enum WorkerState;
  constexpr std::array<std::array<bool, kWorkerStates>, kWorkerStates> kMoves = {{
      // awaited, joining, working, draining, ending, gone
      {false, true, false, false, true, true},    // awaited
      {false, true, true, true, true, true},      // joining
      {false, false, true, true, true, true},     // working
      {false, false, true, true, true, true},     // draining
      {false, true, true, true, true, true},      // ending
      {false, false, false, false, false, false}  // gone
  }};
  return kMoves[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

// Values of <signal.h> on Linux; coordinator.cc checks them.
inline constexpr int kSigKill = 9, kSigTerm = 15, kSigCont = 18;

inline constexpr double kNever_s = std::numeric_limits<double>::infinity();

// The machine's record of a worker, from its Hello (or the database) until the machine forgets it.
struct CoordinatedWorker {
  WorkerId id;
  std::string group;
  ProcessIdentity guardian, agent;
  WorkerState state = WorkerState::awaited;
  bool here = false;  // its processes are in the coordinator's own process table and decide if it lives
  bool guardian_ended = false, agent_ended = false;
  // It comes from an earlier coordinator, and its leases are not known yet. Nothing is leased meanwhile.
  bool unsettled = false;
  std::uint64_t row = 0;        // counts the rows recorded for it
  bool has_row = false;         // the last one is on disk
  bool row_ended = false;       // its end is recorded
  bool scheduled = false;       // the scheduler knows it
  bool reading = false;         // its journal is being read
  bool certainly_dead = false;  // so that its journal can be removed
  bool said_goodbye = false;
  bool drain = false;       // it may finish its leases and gets no more
  bool drain_sent = false;  // on this connection
  std::string gone;  // why it is known to be gone: from the scheduler (job or node) or its guardian (agent)
  double looked_s = 0;  // running time of the last check of its journal, while it is silent

  // ---- its connection
  PeerId peer;                     // empty: none
  bool mute = false;               // a message was not delivered: send nothing before its next Hello
  bool identify = false;           // request that Hello
  std::set<ArrayId> templates;     // sent on this connection
  std::uint64_t heartbeat = 0;     // the last one on this connection
  double heartbeat_s = 1;          // between two of them, as its Welcome says
  double heard_s = 0;              // running time of its last message
  double sent_s = 0;               // steady time of the last message to it
  std::uint64_t acknowledge = 0;   // committed sequence that has not been acknowledged yet; 0: none
  std::size_t unacknowledged = 0;  // results that came since the last Acknowledge

  // ---- its own reports
  WorkerCapacity capacity;
  std::string allocation;               // token; empty: it is in none of the campaign's
  int incarnation = 0;                  // number of that allocation's restart
  std::optional<double> ends_s;         // steady: it can run tasks until then
  std::vector<wire::Lease> held;        // from its Hello, until the scheduler has them
  std::vector<wire::Message> deferred;  // messages since that Hello, while its row is being committed
  std::vector<wire::RunningElement> running;
  std::uint64_t ended = 0;          // elements in its results; repeated ones count twice
  std::vector<wire::Lease> killed;  // revoked parts to kill: sent again after a new Hello

  // ---- its next deadline, in running time
  enum class Due : std::uint8_t { nothing, return_to_us, hand_over, fence, end_agent, end_guardian };
  Due due = Due::nothing;
  double due_s = kNever_s;
  std::string reason;  // why it ends
};

struct CoordinatorMachine::Impl {
  using Worker = CoordinatedWorker;
  // Work that follows once the gathered batch, or the one that is being written, is on disk.
  struct AfterCommit {
    std::vector<std::pair<WorkerId, std::uint64_t>> joined;  // and CoordinatedWorker::row
    std::map<WorkerId, std::uint64_t> acknowledge;           // highest sequence
    std::vector<WorkerId> remove_journals;
    std::vector<CoordinatorAction> questions;  // AnswerQuery, ResolveRetry, Send of a confirmation
    bool during_recovery = false;              // the batch was committed during recovery
    bool empty() const {
      return joined.empty() && acknowledge.empty() && remove_journals.empty() && questions.empty();
    }
  };

  Impl(const specs::Plan& plan, std::vector<ArraySpec> arrays, MachineOptions options,
       const store::Restored& restored, const std::vector<KnownWorker>& known, Now now);

  // ---- machine.cc: time, phases, decisions, commits
  void see_time(Now now);
  void settle();
  void move_to(Phase phase);
  void check_time();
  void pulse();
  void report_unserved();
  void request_drain(const std::string& why);
  void request_stop(const std::string& why);
  void advance_phase();
  void begin_to_dismiss();
  bool workers_are_gone() const;
  void record_end();
  bool all_is_written() const;
  void give_up_disk();
  void kill_all();
  void drain(Worker& worker);
  void remember_kills(Worker& worker, const std::vector<wire::Lease>& parts);
  void take_decisions();
  void send_grants(const std::vector<GrantLease>& grants);
  void send_revokes(const std::vector<RevokeLease>& revokes);
  void record_failure(RecordFailure&& failure);
  // ---- machine_commands.cc: max_failures, max_disk
  void count_step_ends(const Actions& decisions);
  bool is_too_many(std::size_t step);
  void hold_step(std::size_t step);
  void let_go(std::size_t step);
  void end_where_all_is_held();
  void note_disk();
  std::string disk_text() const;
  // ---- machine.cc
  void commit();
  bool may_gather() const;
  void put_off(AfterCommit& work);
  void follow_up(AfterCommit work);
  bool may_lease() const { return unsettled_ == 0 && phase_ != Phase::handing_over && disk_trouble_.empty(); }
  bool is_single(ArrayId array) const;
  void record(const std::string& kind, const std::string& text);
  void log(LogLevel level, std::string text);
  void trace(const CoordinatorEvent& event);
  void trace_actions();
  template <class Action>
  void act(Action&& action) {
    actions_.emplace_back(std::forward<Action>(action));
  }

  // ---- machine_allocations.cc: a coordinator that moves from one allocation to the next
  void check_own_allocation();
  void begin_hand_over(const std::string& why);
  bool has_own_allocation() const;
  bool runs_in_allocation() const {
    return options_.own_allocation.moves && !options_.own_allocation.token.empty();
  }
  std::optional<double> own_left_s() const;
  double own_wake_s() const;
  bool may_end_here() const;

  // ---- machine_workers.cc: messages of workers
  void on(event::Message& event);
  void on(const event::Undelivered& event);
  void on_message(Worker& worker, wire::Message& message);
  void on_hello(const PeerId& peer, wire::Hello& hello);
  void on_results(Worker& worker, wire::Results& results);
  void note_preempted(wire::Results& results, const WorkerId& worker) const;
  static void forget_running(Worker& worker, ArrayId array, Element first, std::uint64_t count);
  void on_returned(Worker& worker, const wire::Returned& returned);
  void on_heartbeat(Worker& worker, wire::Heartbeat& heartbeat);
  void on_goodbye(Worker& worker, const wire::Goodbye& goodbye);
  void apply(wire::Results& results, const WorkerId& worker);
  void apply_event(wire::TaskEvent& event);
  void exclude_node(const wire::TaskEvent& event, const std::string& line);
  void skip_rest(ArrayId follower, const std::string& line);
  void identify(const PeerId& peer);
  void send(Worker& worker, wire::Message message);
  void send_templates(Worker& worker, ArrayId array);
  double gather_s() const;
  double gather_s(const Worker& worker) const;
  void acknowledge(Worker& worker, std::uint64_t sequence);
  void say_acknowledged(Worker& worker);

  // ---- machine_workers.cc: workers join
  void meet(const KnownWorker& known);
  std::optional<std::string> objection(const wire::Hello& hello) const;
  bool group_has_another(const wire::Hello& hello) const;
  void connect(Worker& worker, const PeerId& peer, wire::Hello& hello);
  void welcome(Worker& worker);
  void record_row(Worker& worker);
  void join(Worker& worker);
  void settle_worker(Worker& worker);
  void end_recovery();
  void start_local_workers();

  // ---- machine_workers.cc: workers end
  void on(const event::WorkerStarted& event);
  void on(const event::ProcessEnded& event);
  void on(event::JournalRead& event);
  void on(const event::JournalEnded& event);
  void watch(const ProcessIdentity& process, const std::string& group, const WorkerId& worker);
  void process_ended(Worker& worker);
  void disconnect(Worker& worker);
  void forget(Worker& worker);
  void kill(const ProcessIdentity& process, int signal);
  void lose(Worker& worker, const std::string& reason);
  void read_journal(Worker& worker);
  void finish(Worker& worker);
  void record_worker_end(Worker& worker);
  void set_due(Worker& worker, Worker::Due due, double in_s);
  void check_due();
  void is_due(Worker& worker);
  void check_silence();
  void move(Worker& worker, WorkerState state);

  // ---- machine_allocations.cc: batch allocations
  void on(event::JobSubmitted& event);
  void on(event::JobsListed& event);
  void on(event::JobsCancelled& event);
  void run_pools();
  void sum_running();
  void feed_pools();
  void carry_out(batch::PoolActions actions);
  void drain_allocation(const std::string& token);
  void note_gone(const batch::PoolActions::Gone& gone);
  std::string obstacle_of(const std::string& pool) const;
  bool is_of_old_incarnation(const Worker& worker) const;
  void drain_old_incarnations();
  void check_stuck();
  void note_end(Worker& worker, std::optional<double> left_s);
  std::optional<std::string> objection_to_allocation(const wire::Hello& hello) const;
  Loss loss_of(const Worker& worker) const;
  std::optional<Loss> loss_by(const batch::Allocation& allocation, int incarnation) const;
  void keep_losses(const Worker& worker, std::vector<Outcome> lost);
  void explain_losses();
  bool allocations_are_gone();
  bool has_pool(const std::string& group) const;
  bool awaits_allocation(ArrayId array) const;
  std::optional<wire::Answer> command(const wire::AllocationsCommand& command);
  wire::AllocationsAnswer allocations(double unix_s, bool ended) const;
  std::string waits_for(ArrayId array, double unix_s) const;
  void follow_health(const wire::Results& results, const Worker& worker);
  void judge_nodes();
  void isolate(const NodeHealth::Isolation& isolation);

  // ---- machine_allocations.cc: tasks on several nodes
  wire::Pulse pulse_for(const Worker& worker) const;
  void check_gangs();
  bool waits_for_nodes(const wire::Outcome& outcome, const Worker& worker);
  void judge_failures();

  // ---- machine_commands.cc: requests and signals
  void on_query(const PeerId& peer, wire::Query& query);
  void confirm(const PeerId& peer, wire::Answer&& answer);
  void confirm_in_trouble(const PeerId& peer);
  void answer_in_trouble(const PeerId& peer, wire::Query& query);
  void answer_in_trouble(std::vector<CoordinatorAction>& questions);
  void on(event::Retry& event);
  void on(const event::Signal& event);
  void on(const event::CommitFinished& event);
  void on(event::CommitWaits& event);
  void on(const event::Time&) {}
  void on(const event::OutputsMeasured& event) { scheduler_.outputs_measured(event.array, event.bytes); }
  std::optional<wire::Answer> command(const wire::Request& request);
  wire::Answer pause(bool pause);
  wire::Answer cancel(const wire::CancelRequest& request);
  std::uint64_t retry(const std::vector<std::pair<ArrayId, Range>>& parts);
  void run_again(const RunAgain& what);
  void ask_for_retry(const PeerId& peer, const wire::RetryRequest& request);

  const specs::Plan& plan_;
  MachineOptions options_;
  Groups groups_;
  Scheduler scheduler_;
  std::vector<CoordinatorAction> actions_;
  Now now_;
  double running_s_ = 0;        // since the start, without the coordinator's own pauses
  double watched_until_s_ = 0;  // running time: a dashboard shows running tasks until then
  Phase phase_ = Phase::running;
  bool asked_to_end_ = false;
  bool end_recorded_ = false;
  bool killed_all_ = false;  // at the end: workers that did not end by themselves
  bool failed_ = false;
  bool cancelled_ = false;  // the whole campaign: no task may become ready again
  bool retry_due_ = false;  // MachineOptions::retry or run_again has not been carried out
  bool recovering_ = true;  // it waits for workers of earlier coordinators
  std::vector<std::pair<ArrayId, std::string>> enough_;  // skip_rest() once recovery has ended
  double next_pulse_s_ = 0;                              // steady
  double next_commit_s_ = 0;           // steady: for batches of ends alone, with many workers
  double time_limit_at_s_ = kNever_s;  // steady
  double phase_due_s_ = kNever_s;      // running time at which stopping or dismissing is given up
  std::uint64_t refused_ = 0;
  std::uint64_t notes_ = 0;  // notes of tasks in the history
  std::uint64_t rows_ = 0;   // recorded rows of workers

  std::map<WorkerId, Worker> workers_;
  std::map<PeerId, WorkerId> by_peer_;
  std::map<PeerId, double> identified_;  // unknown peers: running time of the request for a Hello
  std::size_t unsettled_ = 0;            // workers
  double next_due_s_ = kNever_s;         // running time: the first of the workers' dues

  // Watched processes of this process table. A guardian represents a worker of its group, also before the
  // worker's Hello.
  struct WatchedProcess {
    std::string group;  // set for a guardian
    WorkerId worker;    // empty: not known yet
  };
  std::map<ProcessIdentity, WatchedProcess> processes_;
  struct Starts {
    int asked = 0;  // StartWorker under way
    int since_progress = 0;
    std::uint64_t progress = 0;
  };
  std::map<std::string, Starts> starts_;  // by group
  std::uint64_t progress_ = 0;            // all elements that have ended

  store::Batch batch_;
  std::set<ArrayId> changed_arrays_;  // arrays whose totals go into the batch
  AfterCommit gathered_, written_;
  bool committing_ = false;
  std::string disk_trouble_;   // why the current commit waits
  double disk_trouble_s_ = 0;  // running time since when

  struct FailureOnNodes {
    wire::Outcome outcome;
    WorkerId worker;
    double since_s = 0;  // running time
  };
  std::vector<FailureOnNodes> failures_;  // failures of tasks on several nodes, not decided yet

  std::optional<batch::Pools> pools_;
  bool pools_due_ = false;              // an event may change their decisions
  std::map<ArrayId, double> so_far_s_;  // for how long running tasks run, summed: sum_running()
  double pools_give_up_s_ =
      kNever_s;  // running time: the campaign ends then with jobs that can't be cancelled
  bool stuck_ = false;
  // Charged losses whose allocation still ran, as far as its scheduler had reported. Not durable: after a
  // restart of the coordinator they stay charged.
  struct UnexplainedLoss {
    WorkerId worker;
    std::string allocation;
    int incarnation = 0;
    double lost_s = 0;  // running time
    Outcome outcome;
  };
  std::vector<UnexplainedLoss> unexplained_;
  NodeHealth health_;
  bool handed_over_ = false;
  bool said_alone_ = false;  // it has recorded that there is no successor

  std::set<std::size_t> reported_unserved_;  // steps
  // Counts since this coordinator began, or since a retry released the step (machine_commands.cc).
  struct StepEnds {
    std::uint64_t failed = 0;
    bool some_done = false;  // once it is known
    std::string reason;      // why the last task failed
  };
  std::map<std::size_t, StepEnds> step_ends_;
  std::map<std::size_t, std::string> held_;  // steps, and why
  bool ended_before_beyond_ = false;
  std::set<std::string> submitted_;  // sources of followups
};

// ---- checks.cc: makes any message of a peer safe for scheduler, database and JSON

// A date or a duration; 0 for an invalid one (NaN, negative, more than a few hundred years).
double checked_seconds(double seconds);
// Valid UTF-8 without control characters, of at most `limit` bytes.
std::string checked_text(const std::string& text, std::size_t limit);

// Drops entries that name no element of the campaign, and corrects others. Returns the number of dropped
// ones.
std::size_t check(wire::Results& results, const Scheduler& scheduler);
std::size_t check(std::vector<wire::RunningElement>& running, const Scheduler& scheduler);

// Why this is no valid Hello of a worker, independent of the campaign.
std::optional<std::string> reason_to_refuse(const wire::Hello& hello);

}  // namespace wflow::engine
