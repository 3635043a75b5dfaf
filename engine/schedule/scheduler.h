// SPDX-License-Identifier: Apache-2.0
// Decides which tasks run next and records which are done: pure state. Events in, actions out; no socket,
// clock, database or process. The coordinator passes events and carries out actions; tests run a million
// tasks in seconds.
//
// Scheduler moves elements between their states. Its parts each have one job: DependencyGraph (which elements
// can run), ReadyQueues (their order), LeaseTable (which worker holds what, and which wants more), RetryClock
// (when failures run again), DiskLimit (which elements wait until conversions have freed space).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/schedule/actions.h"
#include "engine/schedule/array_spec.h"
#include "engine/schedule/attempt.h"
#include "engine/schedule/dependency_graph.h"
#include "engine/schedule/disk_limit.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/lease_table.h"
#include "engine/schedule/ready_queues.h"
#include "engine/schedule/states.h"
#include "engine/schedule/task_array.h"
#include "engine/schedule/types.h"

namespace wflow::engine {

struct ArrayProgress {
  std::array<std::uint64_t, kElementStates> counts{};
  double duration_sum_s = 0;  // sum over done elements
  double duration_square_sum = 0;
  std::uint64_t timed = 0;
};

struct Backlog {
  std::uint64_t open = 0;     // elements that have not ended, also those that wait for others
  double cores = 0;           // that those which can run, or do, could use at once
  double core_s = 0;          // sum over open elements, in steps with ended ones
  bool measured = true;       // steps with something that can run are among these
  double longest_s = 0;       // one of these may last so long
  std::uint64_t waiting = 0;  // that could be leased now
};

// An array with elements to lease.
struct ScheduledWait {
  ArrayId array = 0;
  int gpus = 0;           // per task
  double cut_s = 0;       // the longest execution that the end of its allocation has cut
  double walltime_s = 0;  // the longest of the allocations that serve it; 0: not known
};

class Scheduler {
 public:
  Scheduler(std::vector<ArraySpec> arrays, std::uint64_t epoch);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // ---- before start(): what an earlier coordinator recorded
  void restore_end(ArrayId array, Range range, ElementState state);
  // After the ends.
  void restore_attempt(ArrayId array, Element element, const AttemptCounts& counts);
  // After its attempt: an execution was cut by the end of its allocation after so long.
  void restore_cut(ArrayId array, Element element, double duration_s);
  void restore_durations(ArrayId array, std::uint64_t timed, double sum_s, double square_sum);
  // In the order of their records: a later floor replaces an earlier one.
  void restore_floor(ArrayId array, Range range, LeaseId lease);
  // Works out what can run.
  void start();

  // ---- events; `now_s` is any steady clock
  // `held`: the leases that the worker reports, in any number of parts. Only the parts that it cannot keep
  // are revoked.
  void worker_joined(const WorkerId& worker, const WorkerCapacity& capacity, const std::vector<Lease>& held);
  // Records the executions that the worker last reported as running, and those of its gangs; they count
  // against the element's crash limit if the loss is charged. Returns those that were charged although their
  // cause may still be reported.
  std::vector<Outcome> worker_lost(const WorkerId& worker, const std::vector<RunningElement>& running,
                                   const Loss& loss = {});
  // Takes the batch scheduler's cause for a loss that worker_lost() returned: its charge is taken back, or
  // stays and may have been the last one.
  void loss_explained(const Outcome& lost, const WorkerId& worker, const Loss& loss);
  // It may still live, but its node is of no use to the gangs that it is part of: they are ended, and run
  // again.
  void node_lost(const WorkerId& worker, const Loss& loss);
  // A task on several nodes asks to run without one of them (WorkerCapacity::node), which slows it down. If
  // enough others are left, it is ended and runs again on them, and no attempt is charged. The tasks of the
  // array leave the node out from then on, as long as this coordinator runs.
  enum class Exclusion : std::uint8_t {
    done,
    stale,     // this execution has ended, or does not run there
    too_few,   // no allocation has enough other nodes
    too_many,  // the array leaves out kMostExcluded nodes already
  };
  static constexpr std::size_t kMostExcluded = 3;
  Exclusion exclude_node(ArrayId array, Element element, std::uint32_t attempt, const std::string& node,
                         const std::string& why);
  // Call it after recovery: gangs with a node whose worker has not returned have lost that node.
  void break_incomplete_gangs();
  void worker_draining(const WorkerId& worker);
  // Its allocation ends then, on the clock of assign(): it gets no task that can't end before.
  void worker_ends(const WorkerId& worker, double ends_s);
  // After a worker has joined: it has reported everything that it finished before. What it was leased and
  // has neither held nor reported was lost on the way and is leased again.
  void handed_over(const WorkerId& worker);
  // No effect where the lease named does not hold the element.
  void returned(const std::vector<Lease>& leases);
  // A success counts once, whichever worker reports it and whenever, unless its lease is below the element's
  // floor. If another lease holds the element now, that part is revoked.
  void done(const DoneRun& run);
  // A failure counts if its lease holds the element; or if no lease does and its execution would be the next
  // one (a journal read after a restart). Like an early success, a failure of a later execution is kept until
  // the earlier ones are reported, and one that ends an element until its parents have ended. Other failures
  // are stale and have no effect, nor have cancelled executions of leases that do not hold the element.
  void ended_badly(const Outcome& outcome, const WorkerId& worker, double now_s);
  // True if the end of this execution is new: done() or ended_badly() has not counted it yet.
  bool awaits(LeaseId lease, ArrayId array, Element element, std::uint32_t attempt) const;
  // No known worker is awaited any more: forgets successes of elements that are still blocked and failures of
  // executions that are not the next, and keeps no others. Until then they are kept, because what comes
  // before them may still arrive.
  void drop_early_results();
  // No new leases until resumed. Spare leases come back.
  void set_paused(bool paused);
  bool paused() const { return paused_; }
  // Leases nothing of this step (ArraySpec::step) until it is released, and revokes the elements that its
  // workers have not begun.
  void hold_step(std::uint32_t step, bool held);
  // True if elements are left, but only of paused steps.
  bool only_held_left() const;
  // saving(): all ends so far are in the commit that begins. saved(): that commit is on disk. An element that
  // runs although some of its input failed, or a block that leaves out samples, is leased once those ends are
  // on disk: after a kill before that, the next coordinator would run the input again, and then the element,
  // though it has succeeded. So is every element of an array with ArraySpec::after_record.
  void saving() { bad_ends_in_commit_ = bad_ends_; }
  void saved();
  // A hard failure then ends only what depends on it.
  void set_keep_going(bool keep_going) { keep_going_ = keep_going; }
  // Everything that has not ended and does not run becomes cancelled.
  void cancel_waiting();
  struct Cancelled {
    std::uint64_t waiting = 0;  // cancelled now
    std::uint64_t running = 0;  // leased: cancelled once their workers have ended them, or not at all
  };
  // The same for a part of one array; what waits for it is skipped. `kill`: also what is leased, unless it
  // comes to an end of its own by then.
  Cancelled cancel(ArrayId array, Range range, bool kill = false);
  // The samples of the data set that a training follows are enough: those that have not been leased are
  // skipped, with all that waits for them alone. Returns how many samples; 0 for any other array.
  std::uint64_t skip_rest_for(ArrayId follower);
  // Final failures of an array run again (all whose state is failed, hard_failed or cancelled), with
  // everything below them that was skipped or has run without them. What runs below them just now ends
  // first, then runs again. Earlier leases do not count for any of them (RecordFloor). Gives how many failed.
  // Many parts at once cost less than one call for each.
  std::uint64_t retry_failed(const std::vector<std::pair<ArrayId, Range>>& parts);
  std::uint64_t retry_failed(ArrayId array, Range range) { return retry_failed({{array, range}}); }
  // Done elements of these parts run again. Done elements that depend on them run again only with `below`;
  // others wait for them. Returns how many elements of the parts were done.
  std::uint64_t run_again(const std::vector<std::pair<ArrayId, Range>>& parts, bool below);

  // No lease has more elements than this (benchmarks).
  void set_max_range(std::uint64_t elements) { max_range_ = elements; }

  // Answers MeasureOutputs.
  void outputs_measured(ArrayId array, std::optional<std::uint64_t> bytes) { disk_.measured(array, bytes); }

  // ---- decisions
  // Leases what is ready to workers that want more, the idlest first, and takes back what has not started
  // from workers that have too much of it.
  void assign(double now_s);
  Actions take_actions() { return std::exchange(actions_, {}); }
  // When assign() would do something new without another event (a retry becomes due, a worker has been idle
  // for too long).
  std::optional<double> next_due_s() const;

  // ---- questions
  std::size_t array_count() const { return arrays_.size(); }
  ArrayProgress progress(ArrayId array) const;
  const RunMap<ElementState, kElementStates>& states(ArrayId array) const { return arrays_[array].states; }
  bool ended() const { return open_ == 0; }
  std::uint64_t leased() const { return leases_.leased(); }
  std::uint64_t leased_to(const WorkerId& worker) const;
  // The worker's spare leases, in seconds in which it can run them all. 0 for one that is not known.
  double spare_s(const WorkerId& worker) const;
  // The workers of a lease on several nodes, the one that holds it first; empty for others.
  std::vector<WorkerId> gang_of(LeaseId lease) const;
  // One of its nodes is lost, or it is leased no more.
  bool gang_is_broken(LeaseId lease) const;
  // Tasks on several nodes, one of which is this worker's; and whether another worker holds one of these.
  std::size_t gangs_on(const WorkerId& worker) const;
  bool helps_gang(const WorkerId& worker) const;
  // The open work by ArraySpec::pool (backlog.cc). Iterates over all arrays. `running_s`: for how long tasks
  // of an array run by now, summed. It counts for the mean: total time under test by ends, as for exponential
  // lifetimes that are cut off (Epstein and Sobel 1953). Otherwise a few short tasks hide how long the others
  // take.
  std::vector<Backlog> backlog(const std::map<ArrayId, double>& running_s = {}) const;
  // The first array of each queue with something to lease.
  std::vector<ScheduledWait> waits() const;
  // One array of each step that has had ready elements for `waiting_s` without a worker that serves it.
  std::vector<ArrayId> without_worker(double waiting_s) const { return ready_.without_worker(waiting_s); }
  // The samples that a lease of these blocks leaves out: none where the conversion takes failed ones, too.
  std::vector<DependencyGraph::Failed> left_out(ArrayId array, Range blocks) const {
    if (!arrays_[array].spec.leaves_out_failed) return {};
    return graph_.failed_samples(array, blocks);
  }
  // The elements that wait for conversions, and the use of the disk.
  const DiskLimit& disk() const { return disk_; }
  std::optional<double> take_disk_overrun() { return disk_.take_overrun(); }
  // Elements done that run again because a conversion has deleted what they left, since the last call.
  std::uint64_t take_made_again() { return std::exchange(made_again_, 0); }
  // Asked for by exit code 105 or 102: end the campaign after what runs.
  bool stop_requested() const { return stop_requested_; }
  // O(log leases).
  std::optional<WorkerId> worker_of(ArrayId array, Element element) const;
  // The leased elements from `from` on, by array and element, in at most `limit` parts. `next`: the begin of
  // the next page; empty after the last.
  struct LeaseCursor {
    ArrayId array = 0;
    Element element = 0;
  };
  struct LeasePart {
    LeaseId lease = 0;
    WorkerId worker;
    ArrayId array = 0;
    Range range;
  };
  struct LeasePage {
    std::vector<LeasePart> parts;
    std::optional<LeaseCursor> next;
  };
  LeasePage leases(LeaseCursor from, std::size_t limit) const;
  struct WorkerView {
    WorkerCapacity capacity;
    std::uint64_t elements = 0;  // leased to it
    bool draining = false;
  };
  std::map<WorkerId, WorkerView> workers() const;
  std::optional<WorkerView> worker(const WorkerId& worker) const;
  // True if an ended state counts as a failure that retry_failed() opens again.
  static bool can_retry(ElementState state) {
    return state == ElementState::failed || state == ElementState::hard_failed ||
           state == ElementState::cancelled;
  }
  // Runs of elements that the operations have touched: tests bound their cost by it.
  std::uint64_t work() const { return work_ + graph_.work(); }

 private:
  bool valid(ArrayId array, Element first, std::uint64_t count) const;

  // scheduler.cc: workers and cancellations
  void adopt(Worker& worker, const Lease& lease);
  void adopt_part(Worker& worker, const Lease& lease, Range part);
  void hold(Worker& worker, const Lease& lease, Range part);
  void wait_again(ArrayId array, Range part);
  void note_ending(const WorkerId& worker, const Lease& lease, Range part);
  void forget_ending(LeaseId lease, ArrayId array, Range range);
  void forget_ending(const WorkerId& worker);
  void hold_ending();
  void give_back_all(Worker& worker);
  std::uint64_t cancel_waiting_in(ArrayId array, Range range);
  Cancelled take_spares(ArrayId array, Range range, const std::function<void(Range)>& asked);
  std::uint64_t request_cancel(ArrayId array, Range range);
  static Lease part_of(LeaseId lease, ArrayId array, Range range);
  void revoke(LeaseId lease, ArrayId array, Range range, bool kill_running);

  // assignment.cc: what a worker gets
  bool grant_next(Worker& worker);
  std::optional<ArrayId> array_for(const Worker& worker, QueueId queue) const;
  std::optional<Element> next_again(const Worker& worker, ArrayId array) const;
  bool may_outlive(const Worker& worker, const TaskArray& array, Element element) const;
  static bool is_suspect(const TaskArray& array, Element element);
  bool holds_suspect(const Worker& worker) const;
  void grant(Worker& worker, ArrayId array, Range range, const Attempt& attempt,
             const std::vector<std::string>& nodes = {}, bool spare = false);
  void move_due_retries();
  bool use_spare(Worker& worker, LeaseId lease, std::uint64_t elements);
  void add_spares(Worker& worker);
  void take_back_spares();

  // gangs.cc: tasks on several nodes
  struct Reservation {
    QueueId queue = 0;
    int nodes = 0;
    double look_s = 0;  // at its workers one by one
  };
  std::vector<Worker*> gang_candidates(ArrayId array, const LeaseTable::Members& members) const;
  int gang_size(QueueId queue, int most);
  bool serve_gang(QueueId queue);
  double gang_start_s(QueueId queue, const std::vector<Worker*>& workers, int size) const;
  void reserve(const std::string& allocation, QueueId queue, std::vector<Worker*> workers, int size,
               double start_s);
  void drop_reservation(const std::string& allocation);
  void look_for_allocations();
  bool grant_reserved(const std::string& allocation);
  void grant_reservations();
  void grant_gang(QueueId queue, const std::vector<Worker*>& workers);
  std::optional<double> next_shrink_s() const;
  std::vector<Outcome> break_gang(LeaseId lease, const Loss& loss);
  void end_ranks(LeaseId lease, Range range);

  // results.cc: how executions end
  std::vector<Range> above_floor(LeaseId lease, ArrayId array, Range range) const;
  void done_while_leased(const DoneRun& run, Range range);
  void succeed(const DoneRun& run, Range part);
  void succeed_leased(const DoneRun& run, Range part);
  void settle_ahead(ArrayId array);
  void succeed_blocked(const DoneRun& run, Range part);
  std::vector<Range> apply_early(ArrayId array, Range range);
  void count_durations(ArrayId array, std::uint64_t timed, double sum_s, double square_sum);
  void done_so(const Outcome& outcome, const WorkerId& worker);
  std::optional<std::uint32_t> unheard_before(const Outcome& outcome) const;
  void count_failure(const Outcome& outcome, const WorkerId& worker, double now_s);
  bool has_input(ArrayId array, Range range) const;
  void keep_early(const Outcome& outcome, const WorkerId& worker, double now_s);
  void take_early_failures(ArrayId array, Range range);
  void drop_early_failures(ArrayId array);
  bool decide(const Outcome& outcome, const WorkerId& worker, Attempt attempt, double now_s);
  void schedule_retry(ArrayId array, Element element, Attempt attempt, double due_s);
  std::int64_t more_memory(ArrayId array, const Attempt& attempt) const;
  bool give_memory(ArrayId array, Attempt& attempt) const;
  std::optional<Outcome> count_crash(const WorkerId& worker, const RunningElement& execution,
                                     const Loss& loss);
  std::optional<Outcome> count_loss(LeaseId lease, const RunningElement& execution, const Loss& loss);
  bool is_cut_for_good(const Outcome& outcome, const WorkerId& worker, Attempt& attempt);
  void end_in_quarantine(const Outcome& lost, const WorkerId& worker, const Attempt& attempt);
  std::uint32_t crash_limit(ArrayId array) const;

  // moves.cc: moves between states
  std::vector<Range> parts_in(ArrayId array, Range range, bool (*keep)(ElementState));
  void end(ArrayId array, Range range, ElementState state);
  void drop_waiting(ArrayId array, Range range);
  void propagate();
  void resolve(ArrayId array, Range range);
  void make_ready(ArrayId array, std::span<const Range> parts);
  void queue(ArrayId array, std::span<const Range> parts);
  void queue_again(ArrayId array, Element element);
  void queue_saved(ArrayId array, std::span<const Range> parts);
  std::vector<Range> wait_for_disk(ArrayId array, std::span<const Range> parts);
  void forget_unsaved(ArrayId array, Range range);
  void has_begun(ArrayId array, Range range);
  std::vector<Range> delay_known(ArrayId array, std::span<const Range> parts);
  void give_back(LeaseId lease, ArrayId array, Range range);
  std::uint64_t reopen(const std::vector<std::pair<ArrayId, Range>>& parts, bool (*opens)(ElementState),
                       bool (*opens_below)(ElementState));
  void find_deleted_inputs(ArrayId array, std::span<const Range> parts, bool (*opens)(ElementState),
                           std::map<ArrayId, std::vector<Range>>& deleted) const;
  std::vector<Range> reopen_in(ArrayId array, std::span<const Range> parts, bool (*opens)(ElementState));
  void raise_floors(ArrayId array, const std::vector<std::pair<Range, ElementState>>& parts);

  std::vector<TaskArray> arrays_;
  DependencyGraph graph_;
  ReadyQueues ready_;
  LeaseTable leases_;
  RetryClock retries_;
  DiskLimit disk_;
  std::map<std::string, Reservation> reservations_;  // by allocation
  // Parts of leases that workers must end, of elements that had ended without them. One that is
  // opened again is held until its worker has ended it.
  struct Ending {
    WorkerId worker;
    Lease lease;
    IntervalSet elements;
  };
  std::map<LeaseId, Ending> ending_;
  std::map<ArrayId, std::set<std::string>> excluded_nodes_;
  std::map<QueueId, double> gang_look_s_;
  std::map<QueueId, double> too_few_since_s_;           // gangs for which no allocation has all nodes
  std::vector<std::pair<ArrayId, Range>> newly_ended_;  // whose children are not resolved yet
  std::vector<EarlyFailure> heard_;                     // whose turn has come; propagate() counts them
  Actions actions_;
  LeaseId next_lease_;
  std::uint64_t open_ = 0;         // elements that have not ended
  bool counts_successes_ = false;  // some array has ArraySpec::after_record
  // Calls of end() that something may wait for: for other ends than successes, if these do not count.
  std::uint64_t bad_ends_ = 0, bad_ends_in_commit_ = 0, bad_ends_saved_ = 0;
  std::map<ArrayId, IntervalMap<std::uint64_t>> unsaved_;  // ready or due once so many of these are saved
  std::uint64_t max_range_ = 1 << 16;
  std::uint64_t work_ = 0;
  std::uint64_t made_again_ = 0;
  double next_look_s_ = std::numeric_limits<double>::infinity();
  double now_s_ = 0;         // time of the last assign(): events come in between
  bool clock_runs_ = false;  // there was one
  bool keeps_early_ = true;
  bool paused_ = false;
  bool keep_going_ = false;
  bool started_ = false;
  bool stop_requested_ = false;
};

}  // namespace wflow::engine
