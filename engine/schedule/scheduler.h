// SPDX-License-Identifier: Apache-2.0
// What runs next and what is done: pure state. Events in, actions out; no socket, clock, database or process.
// The coordinator feeds it and carries out its actions; tests drive a campaign of a million tasks in seconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/states.h"
#include "engine/wire/messages.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

using specs::ArrayId;
using wire::LeaseId;
using WorkerId = std::string;

// What the scheduler must know of one task array.
struct ArraySpec {
  std::uint64_t count = 1;
  int priority = 0;  // higher first
  // Arrays of one step go in the order of their numbers; steps of equal priority take turns.
  std::uint32_t step = 0;
  std::uint32_t pool = 0;  // which workers serve it: WorkerCapacity::pools
  specs::Resources resources;
  std::uint64_t bundle = 0;  // elements of one process: leases end where processes do; 0: one each
  int max_retries = 0;       // executions asked for by exit codes 100 (restart) and 104 (retry)
  int failure_retries = 0;   // executions after an ordinary failure
  double retry_delay_s = 0;
  bool own_program = false;  // a wflow program: its exit codes 2 to 4 say that another try would end the same
  specs::ContinueOn continue_on = specs::ContinueOn::soft_fail;
  std::vector<specs::Edge> edges;
};

struct WorkerCapacity {
  WorkerCapacity(int cores_ = 1, int gpus_ = 0, std::int64_t memory_bytes_ = 0, std::vector<bool> pools_ = {})
      : cores(cores_), gpus(gpus_), memory_bytes(memory_bytes_), pools(std::move(pools_)) {}
  int cores;
  int gpus;
  std::int64_t memory_bytes;  // 0: not known, taken as enough
  std::vector<bool> pools;    // which it serves, by ArraySpec::pool; empty: all
};

// ---- actions

struct GrantLease {
  WorkerId worker;
  wire::Lease lease;
};

struct RevokeLease {
  WorkerId worker;
  wire::Lease part;  // elements [first, first + count) of lease `id`
  bool kill_running = false;
};

// Neighbouring elements reached a final state: to be made durable.
struct RecordEnd {
  ArrayId array = 0;
  Range range;
  ElementState state = ElementState::done;
};

// One execution did not succeed. `final`: it was the last one; otherwise the element will run again.
struct RecordFailure {
  wire::Outcome outcome;
  WorkerId worker;
  bool final = false;
  std::uint32_t next_attempt = 0;
  bool restart = false;
};

// These elements were opened again (wflow retry): what ran under leases below `lease` does not count for
// them, whenever and from whichever journal it is heard of.
struct RecordFloor {
  ArrayId array = 0;
  Range range;
  LeaseId lease = 0;
};

struct Actions {
  std::vector<GrantLease> grants;
  std::vector<RevokeLease> revokes;
  std::vector<RecordEnd> ends;
  std::vector<RecordFailure> failures;
  std::vector<RecordFloor> floors;
};

struct ArrayProgress {
  std::array<std::uint64_t, kElementStates> counts{};
  double duration_sum_s = 0;  // of the elements done
  double duration_square_sum = 0;
  std::uint64_t timed = 0;
};

class Scheduler {
 public:
  Scheduler(std::vector<ArraySpec> arrays, std::uint64_t epoch);

  // ---- before start(): what an earlier coordinator recorded
  void restore_end(ArrayId array, Range range, ElementState state);
  void restore_attempt(ArrayId array, Element element, std::uint32_t next_attempt, bool restart);
  void restore_durations(ArrayId array, std::uint64_t timed, double sum_s, double square_sum);
  // Works out what can run.
  void start();

  // ---- events; `now_s` is any steady clock
  void worker_joined(const WorkerId& worker, const WorkerCapacity& capacity,
                     const std::vector<wire::Lease>& held);
  // Executions that the worker last said were running count against the element's crash limit.
  void worker_lost(const WorkerId& worker, const std::vector<wire::RunningElement>& running);
  void worker_draining(const WorkerId& worker);
  // After a worker has joined: it has told everything that it finished before. What it was leased and then
  // neither held nor told was lost on the way and is leased again.
  void handed_over(const WorkerId& worker);
  void returned(const std::vector<wire::Lease>& leases);
  void done(const wire::DoneRun& run);
  void ended_badly(const wire::Outcome& outcome, const WorkerId& worker, double now_s);
  // No new leases until resumed.
  void set_paused(bool paused) {
    paused_ = paused;
    next_split_s_ = now_s_;
  }
  bool paused() const { return paused_; }
  // A hard failure then ends only what depends on it.
  void set_keep_going(bool keep_going) { keep_going_ = keep_going; }
  // Everything that has not ended and does not run becomes cancelled.
  void cancel_waiting();
  // The same for a part of one array; what waits for it is skipped. `kill`: also what runs, which is
  // cancelled once its worker has ended it, unless it has come to an end of its own by then. Gives how many.
  std::uint64_t cancel(ArrayId array, Range range, bool kill = false);
  // Final failures of an array run again (all whose state is failed, hard_failed or cancelled), with
  // everything below them that was skipped or has run without them. What runs below them just now ends first,
  // then runs again.
  std::uint64_t retry_failed(ArrayId array, Range range);

  // No lease has more elements than this (benchmarks).
  void set_max_range(std::uint64_t elements) { max_range_ = elements; }

  // ---- decisions
  // Leases what is ready to workers that want more, the idlest first, and takes back what has not started
  // from workers that have too much of it.
  void assign(double now_s);
  Actions take_actions();
  // When assign() would do something new without another event (a retry becomes due, a worker has been idle
  // for too long).
  std::optional<double> next_due_s() const;

  // ---- questions
  std::size_t array_count() const { return arrays_.size(); }
  ArrayProgress progress(ArrayId array) const;
  const RunMap<ElementState, kElementStates>& states(ArrayId array) const { return arrays_[array].states; }
  bool ended() const { return open_ == 0; }
  std::uint64_t leased() const { return leased_; }
  // Of each step that has had something to lease for `patience_s`, and no worker that serves it: one array.
  std::vector<ArrayId> without_worker(double patience_s) const;
  // Asked for by exit code 105 or 102: end the campaign after what runs.
  bool stop_requested() const { return stop_requested_; }
  std::optional<WorkerId> worker_of(ArrayId array, Element element) const;
  struct WorkerView {
    WorkerCapacity capacity;
    std::uint64_t elements = 0;  // leased to it
    bool draining = false;
  };
  std::map<WorkerId, WorkerView> workers() const;
  // Calls visit(const WorkerId&, ArrayId, Range) for every part of every lease.
  template <typename Visit>
  void for_each_lease(Visit visit) const {
    for (const auto& [id, lease] : leases_) {
      lease.remaining.for_each_in({0, arrays_[lease.array].spec.count - 1},
                                  [&](Range range) { visit(lease.worker->id, lease.array, range); });
    }
  }
  // Whether an ended state counts as a failure that retry_failed() opens again.
  static bool can_retry(ElementState state) {
    return state == ElementState::failed || state == ElementState::hard_failed ||
           state == ElementState::cancelled;
  }

 private:
  struct Child {
    ArrayId array;
    specs::EdgeKind kind;
    std::uint64_t block;
  };
  struct Attempt {
    std::uint32_t number = 0;
    std::uint32_t failures = 0;  // ordinary ones
    std::uint32_t crashes = 0;   // lost with a worker while running
    bool restart = false;
  };
  using QueueId = std::uint32_t;
  struct Array {
    explicit Array(ArraySpec s) : spec(std::move(s)), states(spec.count, ElementState::blocked) {}
    ArraySpec spec;
    QueueId queue = 0;
    std::uint64_t counted = 0;  // of its elements in the queue's `ready`
    RunMap<ElementState, kElementStates> states;
    IntervalSet ready;
    IntervalSet ended;
    std::map<Element, Attempt> attempts;  // elements that ran without success and have not ended
    std::set<Element> retry_ready;        // state delayed, and due
    IntervalSet invalidated;              // leased, but on input that is made again: their end does not count
    IntervalSet cancel_requested;         // leased, and cancelled as soon as their worker gives them back
    std::vector<Child> children;
    std::uint64_t timed = 0;
    double duration_sum_s = 0;
    double duration_square_sum = 0;
  };
  // Before, or behind, all others of the queue: queues that have waited too long; then by priority; then
  // those that got the least so far.
  using QueueKey = std::tuple<int, std::int64_t, double, QueueId>;
  // The arrays of a step: they ask for the same, and go in the order of their numbers.
  struct ReadyQueue {
    int priority = 0;
    std::uint32_t pool = 0;
    specs::Resources resources;
    std::set<ArrayId> waiting;    // with something to lease
    std::optional<QueueKey> key;  // in the queue
    std::uint64_t ready = 0;      // elements to lease
    std::uint64_t leased = 0;
    std::uint64_t timed = 0;
    double duration_sum_s = 0;
    double served_core_s = 0;  // leased so far, as estimated; a queue that comes later begins with the others
    double waits_since_s = 0;  // it came into the queue, or was served
    bool overdue = false;
    int cores = 0;  // of the workers that serve it
    int workers = 0;
  };
  struct Worker;
  struct LeaseState {
    Worker* worker = nullptr;
    ArrayId array = 0;
    IntervalSet remaining;
    double seconds_each = 0;  // as estimated when granted, at most what a core should have ahead of it
    double cores_each = 1;
    double processes_each = 1;  // of an element: less than one where a process takes several
    bool revoked = false;       // asked for what has not started
  };
  // What the elements leased to a worker take, all at once.
  struct Load {
    double cores = 0, gpus = 0, memory_bytes = 0;
    double core_s = 0;  // estimated core seconds ahead
  };
  using DemandKey = std::tuple<bool, double, std::uint64_t>;
  struct Worker {
    WorkerId id;
    std::uint64_t number = 0;  // in order of joining
    WorkerCapacity capacity;
    std::vector<bool> serves;  // by queue
    std::set<LeaseId> leases;
    Load load;
    std::map<QueueId, double> scarce_s;  // of queues that ask for GPUs or memory: see scarce_s()
    double slowness = 1;                 // its tasks' durations over their arrays' means, lately
    bool untried =
        false;  // was taken back from, and has told of nothing since: gets no more than it can start
    bool draining = false;
    std::optional<double> free_since_s;      // it has cores without work
    std::optional<DemandKey> key;            // in demand_ or unserved_
    std::map<LeaseId, IntervalSet> missing;  // neither held nor told when it joined again
  };

  // What the edges of an element say of it, the worse the greater.
  enum class Verdict : std::uint8_t { run, skip, wait };
  using Judged = std::pair<Range, Verdict>;

  // scheduler.cc: moves between states
  bool valid(ArrayId array, Element first, std::uint64_t count) const;
  void end(ArrayId array, Range range, ElementState state);
  void reopen(ArrayId array, Range range);
  void reopen_one(ArrayId array, Range range, ElementState state);
  bool rerun_invalidated(ArrayId array, Range range);
  std::uint64_t request_cancel(ArrayId array, Range range);
  void make_ready(ArrayId array, Range range);
  void give_back(ArrayId array, Range range);
  void drop_waiting(ArrayId array, Range range);
  void decide(const wire::Outcome& outcome, const WorkerId& worker, Attempt attempt, double now_s);
  void schedule_retry(ArrayId array, Element element, const Attempt& attempt, double due_s);
  void count_crash(const WorkerId& worker, const wire::RunningElement& execution);

  // readiness.cc: dependencies
  void propagate();
  void resolve(ArrayId child, Range range);
  void hold_incomplete_bundles(const Array& array, std::vector<Judged>& parts) const;
  std::optional<Range> children_of(const Child& child, Range range) const;
  std::vector<Judged> judge(const std::vector<Judged>& parts, const specs::Edge& edge,
                            specs::ContinueOn policy) const;
  template <typename Visit>
  void for_each_verdict(const specs::Edge& edge, Range range, specs::ContinueOn policy, Visit visit) const;

  // assignment.cc: leases
  bool grant_next(Worker& worker);
  bool takes(const Worker& worker, const ReadyQueue& queue) const;
  double room(const Worker& worker, const ReadyQueue& queue) const;
  double scarce_s(const Worker& worker, const ReadyQueue& queue) const;
  static double scarce_share(const Worker& worker, const ReadyQueue& queue);
  std::uint64_t range_size(const Array& array, const Worker& worker) const;
  Range next_range(const Array& array, const Worker& worker) const;
  double seconds_of(const Array& array, const Worker& worker) const;
  static double cores_of(const ReadyQueue& queue, const Worker& worker);
  LeaseState& add_lease(LeaseId lease_id, Worker& worker, ArrayId array_id);
  void add_to_lease(LeaseState& lease, Range range);
  void change_load(const LeaseState& lease, double elements);
  void grant(Worker& worker, ArrayId array, Range range, const Attempt& attempt);
  void adopt_lease(Worker& worker, const wire::Lease& lease);
  bool release_from_lease(LeaseId lease, Range range);
  void index(Worker& worker);
  void unindex(Worker& worker);
  // split.cc: taking back
  void split_back();
  bool revoke_from(Worker& owner, const Worker& idle);
  void learn_speed(const wire::DoneRun& run);
  void note_missing(Worker& worker, const std::vector<wire::Lease>& held);

  // queue.cc: what goes first
  void make_queues();
  void move_due_retries(double now_s);
  void mark_overdue();
  void update_queue(ArrayId array);
  void requeue(QueueId queue);
  void serve(QueueId queue, double core_s);
  void count_worker(const Worker& worker, int sign);

  // The parts of `range` whose state `keep` accepts: gathered first, because the visitors change the map.
  template <typename Keep>
  std::vector<Range> parts_in(ArrayId array, Range range, Keep keep) const {
    std::vector<Range> parts;
    arrays_[array].states.for_each_in(range, [&](Range r, ElementState state) {
      if (!keep(state)) return;
      const bool joins = !parts.empty() && parts.back().last + 1 == r.first;
      joins ? void(parts.back().last = r.last) : parts.push_back(r);
    });
    return parts;
  }

  std::vector<Array> arrays_;
  std::vector<ReadyQueue> queues_;
  std::unordered_map<LeaseId, LeaseState> leases_;
  std::map<WorkerId, Worker> workers_;
  std::set<QueueKey> order_;  // queues with something to lease
  // Workers that want more: the idlest first; and those of them for which the queue has nothing.
  std::map<DemandKey, Worker*> demand_, unserved_;
  std::multimap<double, std::pair<ArrayId, Element>> delayed_;
  std::vector<std::pair<ArrayId, Range>> newly_ended_;  // whose children are not resolved yet
  Actions actions_;
  LeaseId next_lease_;
  std::uint64_t open_ = 0;  // elements that have not ended
  std::uint64_t leased_ = 0;
  std::uint64_t max_range_ = 1 << 16;
  std::uint64_t joined_ = 0;
  double now_s_ = 0;         // of the last assign(): events come in between
  bool clock_runs_ = false;  // there was one
  double next_patience_s_ = 0;
  std::optional<double> next_split_s_;
  bool paused_ = false;
  bool keep_going_ = false;
  bool started_ = false;
  bool stop_requested_ = false;
};

}  // namespace wflow::engine
