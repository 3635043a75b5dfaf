// SPDX-License-Identifier: Apache-2.0
// What runs next and what is done: pure state. Events in, actions out; no socket, clock, database or process.
// The coordinator feeds it and carries out its actions; tests drive a campaign of a million tasks in seconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/intervals.h"
#include "engine/states.h"
#include "engine/wire/messages.h"
#include "specs/plan.h"

namespace wflow::engine {

using specs::ArrayId;
using wire::LeaseId;
using WorkerId = std::string;

// What the scheduler must know of one task array.
struct ArraySpec {
  std::uint64_t count = 1;
  int priority = 0;  // higher first
  specs::Resources resources;
  std::uint64_t bundle = 0;  // elements of one process: leases end where processes do; 0: one each
  int max_retries = 0;       // executions asked for by exit codes 100 (restart) and 104 (retry)
  int failure_retries = 0;   // executions after an ordinary failure
  double retry_delay_s = 0;
  specs::ContinueOn continue_on = specs::ContinueOn::soft_fail;
  std::vector<specs::Edge> edges;
};

struct WorkerCapacity {
  int cores = 1;
  int gpus = 0;
};

// ---- actions

struct GrantLease {
  WorkerId worker;
  wire::Lease lease;
};

struct RevokeLease {
  WorkerId worker;
  LeaseId lease = 0;
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

struct Actions {
  std::vector<GrantLease> grants;
  std::vector<RevokeLease> revokes;
  std::vector<RecordEnd> ends;
  std::vector<RecordFailure> failures;
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
  void returned(const std::vector<wire::Lease>& leases);
  void done(const wire::DoneRun& run);
  void ended_badly(const wire::Outcome& outcome, const WorkerId& worker, double now_s);
  // No new leases until resumed.
  void set_paused(bool paused) { paused_ = paused; }
  bool paused() const { return paused_; }
  // Everything that has not ended and does not run becomes cancelled.
  void cancel_waiting();
  // The same for a part of one array; what waits for it is skipped. Gives how many.
  std::uint64_t cancel(ArrayId array, Range range);
  // Final failures of an array run again (all whose state is failed, hard_failed or cancelled), with
  // everything below them that was skipped or has run without them. What runs below them just now ends first,
  // then runs again.
  std::uint64_t retry_failed(ArrayId array, Range range);

  // ---- decisions
  void assign(double now_s);
  Actions take_actions();
  // When assign() would do something new without another event (a retry becomes due).
  std::optional<double> next_due_s() const;

  // ---- questions
  std::size_t array_count() const { return arrays_.size(); }
  ArrayProgress progress(ArrayId array) const;
  const RunMap<ElementState, kElementStates>& states(ArrayId array) const { return arrays_[array].states; }
  bool ended() const { return open_ == 0; }
  std::uint64_t leased() const { return leased_; }
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
                                  [&](Range range) { visit(lease.worker, lease.array, range); });
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
  struct Array {
    explicit Array(ArraySpec s) : spec(std::move(s)), states(spec.count, ElementState::blocked) {}
    ArraySpec spec;
    RunMap<ElementState, kElementStates> states;
    IntervalSet ready;
    IntervalSet ended;
    std::map<Element, Attempt> attempts;  // elements that ran without success and have not ended
    std::set<Element> retry_ready;        // state delayed, and due
    IntervalSet stale;                    // leased, but on input that is made again: their end does not count
    std::vector<Child> children;
    std::uint64_t timed = 0;
    double duration_sum_s = 0;
    double duration_square_sum = 0;
  };
  struct LeaseState {
    WorkerId worker;
    ArrayId array = 0;
    IntervalSet remaining;
    double seconds_each = 0;  // as estimated when granted
    int cores_each = 1;
    double processes_each = 1;  // of an element: less than one where a process takes several
  };
  struct Worker {
    WorkerCapacity capacity;
    std::set<LeaseId> leases;
    double load_cores = 0;   // cores that its elements would take together
    double load_core_s = 0;  // estimated core seconds ahead of it
    bool draining = false;
  };

  // What the edges of an element say of it, the worse the greater.
  enum class Verdict : std::uint8_t { run, skip, wait };
  using Judged = std::pair<Range, Verdict>;

  // scheduler.cc: moves between states
  bool valid(ArrayId array, Element first, std::uint64_t count) const;
  void end(ArrayId array, Range range, ElementState state);
  void reopen(ArrayId array, Range range);
  void reopen_one(ArrayId array, Range range, ElementState state);
  bool run_stale_again(ArrayId array, Range range);
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
  void move_due_retries(double now_s);
  void fill_worker(const WorkerId& id, Worker& worker);
  bool wants_more(const Worker& worker) const;
  std::uint64_t bundle_size(const Array& array, const Worker& worker) const;
  Range next_range(const Array& array, const Worker& worker) const;
  std::optional<double> mean_duration_s(const Array& array) const;
  int cores_of(const Array& array, const Worker& worker) const;
  LeaseState& add_lease(LeaseId lease_id, const WorkerId& id, Worker& worker, ArrayId array_id);
  void add_to_lease(LeaseState& lease, Worker& worker, Range range);
  void grant(const WorkerId& id, Worker& worker, ArrayId array, Range range, const Attempt& attempt);
  void adopt_lease(const WorkerId& id, Worker& worker, const wire::Lease& lease);
  bool release_from_lease(LeaseId lease, Range range);
  void update_queue(ArrayId array);

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
  std::unordered_map<LeaseId, LeaseState> leases_;
  std::map<WorkerId, Worker> workers_;
  std::set<std::pair<int, ArrayId>> queue_;  // (-priority, array) with something to lease
  std::multimap<double, std::pair<ArrayId, Element>> delayed_;
  std::vector<std::pair<ArrayId, Range>> newly_ended_;  // whose children are not resolved yet
  Actions actions_;
  LeaseId next_lease_;
  std::uint64_t open_ = 0;  // elements that have not ended
  std::uint64_t leased_ = 0;
  int total_cores_ = 0;
  bool paused_ = false;
  bool started_ = false;
  bool stop_requested_ = false;
};

}  // namespace wflow::engine
