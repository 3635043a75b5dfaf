// SPDX-License-Identifier: Apache-2.0
// What has really happened: every execution of every element, kept outside of the machines. Whatever breaks
// a promise is thrown as a Violation the moment it happens.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "engine/store/batch.h"
#include "engine/wire/messages.h"
#include "tests/simulation/tasks.h"

namespace wflow::simulation {

namespace wire = engine::wire;
using WorkerNumber = std::uint32_t;
using ExecutionNumber = std::uint32_t;

// Names as in the table of tests/simulation/README.md.
struct Violation : std::runtime_error {
  Violation(std::string name, const std::string& text)
      : std::runtime_error(name + ": " + text), invariant(std::move(name)) {}
  std::string invariant;
};

// How an element of a process ended.
enum class TrueEnd : std::uint8_t {
  running,
  success,
  failure,
  none,  // killed with its worker, given back, or run again in a smaller process
};

// The output of a simulation, for a conversion that deletes it.
inline constexpr std::uint64_t kRawBytes = 1000;

struct Execution {  // one process
  wire::Lease lease;
  WorkerNumber worker = 0;
  double started_s = 0;
  bool ended = false;
  bool orphan = false;  // its worker has died, its children have not
};

struct ElementTruth {
  std::vector<ExecutionNumber> running;
  std::vector<ExecutionNumber> untold;  // neither their results nor their loss is known to their worker
  LeaseId secured = 0;        // the latest lease of a success that its worker has in its journal; 0: none
  LeaseId void_below = 0;     // successes up to this lease were made on input that has been lost
  LeaseId floor_before = 0;   // if its floor does not reach the disk
  LeaseId floor = 0;          // executions under lower leases do not count any more
  LeaseId covered = 0;        // the floor, once it is opened again: set while it had ended
  LeaseId opened_for = 0;     // leased by a coordinator whose next commit raises the floor
  std::uint32_t charges = 0;  // executions that ended badly, or were lost with their worker
  std::uint32_t executions = 0;
  engine::ElementState state = engine::ElementState::blocked;  // as the coordinator records it
  bool committed = false;                                      // its success is in the database
  bool cancel_asked = false;
  struct End {
    LeaseId lease;
    std::uint32_t attempt;
    bool success;
    wire::EndReason reason;
    int code;
  };
  std::vector<End> ends;        // by itself
  bool result_lost = false;     // it has ended, which no journal and no database says
  bool in_job = false;          // it has run in a job of the batch scheduler
  std::vector<LeaseId> losses;  // leases under which it ran when its worker died
  // Executions recorded in the database since it was opened last that failed and were followed by others.
  int ordinary = 0, asked_again = 0, crashes = 0;
  int neutral_losses = 0;         // workers that were lost with their allocations while it ran
  std::uint32_t memory = 0;       // executions that got more memory
  std::int64_t memory_bytes = 0;  // that it has from then on, ...
  std::uint32_t memory_from = 0;  // ... from this execution on
};

class History {
 public:
  History(const SimulatedStudy& study, std::function<bool(const Execution&)> excused);

  // ---- workers, numbered from 0
  void note_worker(WorkerNumber worker, int slots, bool in_job);
  // Nothing of the lease is left on the worker's node.
  void ranks_ended(LeaseId lease, WorkerNumber worker) { ranks_ended_.emplace(lease, worker); }

  // ---- executions
  ExecutionNumber start(const wire::Lease& lease, WorkerNumber worker, double now_s);
  // The process is gone. The ends of its elements were reported before.
  void stop(ExecutionNumber execution);
  void leave_orphan(ExecutionNumber execution) { executions_[execution].orphan = true; }
  void element_ended(const wire::Outcome& outcome, bool success);
  // Its worker knows how all of it ended.
  void told(ExecutionNumber execution);
  // Running when its worker died: counts towards the crash limit.
  void lost(ExecutionNumber execution);
  // Recorded by its worker in a journal that survives it.
  void secured(const wire::Results& record);
  // A crash of a host, or a file system that did not show it, has lost this success before it was committed.
  void unsecure(ArrayId array, Element element, LeaseId lease);
  // The same of any result, also where another host does not see it.
  void unseen(ArrayId array, Element element, LeaseId lease);
  // The result of an execution is in no journal, and its worker is dead.
  void result_lost(ExecutionNumber execution);
  void result_lost(const std::tuple<ArrayId, Element, LeaseId>& result);
  // Every success that is secured and not committed.
  void for_each_uncommitted(const std::function<void(ArrayId, Element, LeaseId)>& visit) const;

  // ---- files that conversions delete
  // Of an element; nothing where it has left none, or they are deleted.
  std::optional<std::uint64_t> raw_bytes(ArrayId array, Element element) const;

  // ---- the coordinator
  // Its retry was carried out: the floors are in its next commit, and leases may go out before.
  void retry_decided() { floors_due_ = true; }
  void leased(const wire::Lease& lease);
  void coordinator_ended();
  void committing(const engine::store::Batch& batch);  // floors count from now on
  void committed(const engine::store::Batch& batch);
  void acknowledged(const wire::Results& results);
  void cancel_asked(ArrayId array, engine::Range range);
  // The state that a new coordinator, or the final check, finds in the database.
  void check_restored(const engine::store::Restored& restored);

  // A task of this stage of a training reports that it needs no more samples: those that have not begun may
  // be skipped.
  void enough_samples(ArrayId stage);

  // The worker runs in a job that a coordinator has decided to cancel: failures there count as caused by
  // that.
  void job_is_cancelled(WorkerNumber worker) { in_cancelled_jobs_.insert(worker); }

  // ---- the end
  void check_final(const engine::store::Restored& restored);

  ElementTruth& at(ArrayId array, Element element) { return truths_[index(array, element)]; }
  const ElementTruth& at(ArrayId array, Element element) const { return truths_[index(array, element)]; }
  const Execution& execution(ExecutionNumber number) const { return executions_[number]; }
  std::size_t executions() const { return executions_.size(); }
  std::string name(ArrayId array, Element element) const;

 private:
  std::size_t index(ArrayId array, Element element) const { return offsets_[array] + element; }
  void note_run(ArrayId array, Element element);
  void leave_raw(const wire::Lease& lease);
  void delete_raw(ArrayId deleter, Element block);
  void check_disk(ArrayId deleter, const specs::Edge& edge) const;
  bool is_given_up(ArrayId deleter, Element block) const;
  void make_again_below(ArrayId array, Element element);
  bool has_lost_input(ArrayId array, Element element) const;
  void forget_blocks(ArrayId array, Element element);
  void check_floors_due();
  void check_slots(const wire::Lease& lease, const Execution& execution) const;
  bool is_uncharged(const engine::RecordFailure& failure) const;
  bool is_left_of_cancelled(const Execution& one, const Execution& started) const;
  double cores_on(WorkerNumber worker, const Execution& execution) const;
  std::vector<ExecutionNumber> given_up(const ElementTruth& truth) const;
  bool was_lost(const wire::Outcome& outcome);
  bool ended_in_cancelled_job(const wire::Outcome& outcome);
  void check_start(const wire::Lease& lease, Element element, const Execution& execution) const;
  std::vector<engine::ElementState> states_of(const engine::store::Restored& restored) const;
  bool may_run(const std::vector<engine::ElementState>& states, ArrayId array, Element element) const;
  void check_end(engine::ElementState state, bool may_run, ArrayId array, Element element) const;
  std::vector<ArrayId> chain_of(const specs::Edge& edge) const;
  bool is_cancelled_too_late(const std::vector<engine::ElementState>& states, const specs::Edge& edge,
                             Element sample) const;
  std::set<Element> failed_in(const std::vector<engine::ElementState>& states, const specs::Edge& edge,
                              Element block) const;
  void check_left_out(const std::vector<engine::ElementState>& states, ArrayId array) const;
  std::optional<std::set<Element>> left_out_by(LeaseId lease, ArrayId array, Element block) const;
  bool used_up(const ElementTruth& truth, const engine::ArraySpec& spec) const;

  const SimulatedStudy& study_;
  std::function<bool(const Execution&)> excused_;
  std::vector<std::size_t> offsets_;
  std::vector<ElementTruth> truths_;
  std::vector<Execution> executions_;
  struct Acknowledged {
    ArrayId array;
    Element element;
    LeaseId lease;
  };
  std::vector<Acknowledged> acknowledged_;
  bool floors_due_ = false;
  std::vector<std::size_t> raised_;   // truths whose floor is raised by the batch that is being written
  std::vector<Acknowledged> opened_;  // successes whose element was leased again; the next commit says why
  std::set<WorkerNumber> in_cancelled_jobs_;
  std::set<ArrayId> may_be_skipped_;  // enough_samples()
  // Files of simulations that conversions with a limit delete, by array.
  std::map<ArrayId, std::set<Element>> raw_;
  // Blocks of conversions of which something was opened again, cancelled or lost: files of theirs may be
  // there that no coordinator knows of.
  std::set<std::pair<ArrayId, Element>> unknown_blocks_;
  std::vector<int> slots_;  // by worker
  std::set<WorkerNumber> in_jobs_;
  std::set<std::pair<LeaseId, WorkerNumber>> ranks_ended_;
};

}  // namespace wflow::simulation
