// SPDX-License-Identifier: Apache-2.0
// Who holds which elements, what that loads each worker with, and which workers want more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/ready_queues.h"
#include "engine/schedule/task_array.h"
#include "engine/schedule/worker.h"

namespace wflow::engine {

struct LeaseState {
  Worker* worker = nullptr;
  ArrayId array = 0;
  Range bounds;                // all of its elements lie within
  std::uint64_t elements = 0;  // that it holds
  std::uint64_t spare = 0;     // its elements beyond the load of its worker (Worker::spares)
  bool is_long = false;        // its tasks last longer than kLongestAhead_s, as estimated when granted
  double seconds_each = 0;     // as estimated when granted, at most what a core should have ahead of it
  double cores_each = 1;
  double processes_each = 1;  // per element: less than one if a process runs several
  double memory_each = 0;     // bytes, of a process
  double alone_each = 0;      // seconds of the whole worker per element
  bool revoked = false;       // its elements that have not started were revoked
  double granted_s = 0;       // or adopted
  // ---- of a gang
  bool gang = false;
  std::vector<Worker*> others;       // the workers of its other nodes
  std::vector<std::string> missing;  // names of nodes whose workers have not joined this coordinator yet
  bool broken = false;               // one of its nodes is lost: however it ends, it runs again
};

// An element is held by one lease at most.
class LeaseTable {
 public:
  // `arrays` and `queues` outlive the table, which keeps the queues' accounts of leases and workers.
  LeaseTable(const std::vector<TaskArray>& arrays, ReadyQueues& queues)
      : arrays_(arrays), queues_(queues), holders_(arrays.size()) {}
  LeaseTable(const LeaseTable&) = delete;
  LeaseTable& operator=(const LeaseTable&) = delete;

  // ---- workers
  Worker* find_worker(const WorkerId& worker);
  const std::map<WorkerId, Worker>& workers() const { return workers_; }
  // One that is known keeps its leases.
  Worker& join(const WorkerId& worker, const WorkerCapacity& capacity);
  void set_draining(Worker& worker);
  // It holds no lease any more.
  void leave(const WorkerId& worker);
  // The largest memory of the workers that serve the queue and are not leaving; 0: not known.
  std::int64_t largest_memory(QueueId queue) const;
  // Its durations against those of the same array elsewhere.
  void learn_speed(const DoneRun& run);
  // note_missing() keeps the elements leased to the worker that `held` does not name; take_missing() returns
  // those that it has not reported since.
  void note_missing(Worker& worker, const std::vector<Lease>& held);
  std::map<LeaseId, std::vector<Range>> take_missing(Worker& worker);

  // ---- leases
  const LeaseState* find(LeaseId lease) const;
  const WorkerId& worker_of(LeaseId lease) const { return leases_.at(lease).worker->id; }
  const IntervalMap<LeaseId>& holders(ArrayId array) const { return holders_[array]; }
  std::optional<LeaseId> holder_of(ArrayId array, Element element) const;
  bool holds(LeaseId lease, ArrayId array, Range range) const { return holders_[array].is(range, lease); }
  // The parts of the range that the lease holds.
  std::vector<Range> parts(LeaseId lease, ArrayId array, Range range) const;
  std::vector<Range> parts(LeaseId lease) const;
  // Requires that no lease holds the range. Makes the lease if it does not exist.
  // `memory_bytes`: per process, if it differs from the step's demand.
  LeaseState& hold(LeaseId lease, Worker& worker, ArrayId array, Range range, std::int64_t memory_bytes = 0);
  // The lease holds the whole range. Removes a lease without elements. `unstarted`: the worker has given it
  // back.
  void release(LeaseId lease, Range range, bool unstarted = false);
  std::uint64_t leased() const { return leased_; }

  // ---- spare leases
  // Removes the elements that the worker's cores cannot run at once from its load.
  void make_spare(LeaseId lease);
  // The worker has capacity: at most `most` of the lease's spare elements count as its load again. Returns
  // their number.
  std::uint64_t use_spare(LeaseId lease, std::uint64_t most);
  // The first spare lease that it will start.
  std::optional<LeaseId> next_spare(const Worker& worker) const;
  bool has_spares() const { return spares_ > 0; }
  // All spare leases, to be revoked: they are not used meanwhile.
  std::vector<LeaseId> take_spares();

  // ---- gangs
  // The lease runs on these nodes of its worker's allocation, its worker's own among them. Their workers are
  // charged for it, those that come later once they join.
  void set_gang(LeaseId lease, const std::vector<std::string>& nodes);
  const std::set<LeaseId>& incomplete_gangs() const { return incomplete_; }
  void set_broken(LeaseId lease) { leases_.at(lease).broken = true; }
  // Workers of each allocation, in the order of joining.
  using Members = std::map<std::uint64_t, Worker*>;
  const std::map<std::string, Members>& allocations() const { return allocations_; }
  // When the worker has so many cores free, as far as durations are known.
  double free_at_s(const Worker& worker, double cores) const;
  void reserve(Worker& worker, double cores, double from_s);

  // ---- demand
  void set_time(double now_s) {
    find_places();  // the times since when workers are free are those of their events
    now_s_ = now_s;
  }
  // Workers that want more: the idlest first.
  Worker* first_demand() {
    find_places();
    return demand_.empty() ? nullptr : demand_.begin()->second;
  }
  // Nothing is ready for it, until retry_unserved().
  void set_unserved(const Worker& worker) {
    find_places();
    if (!worker.key) return;
    if (auto node = demand_.extract(*worker.key)) unserved_.insert(std::move(node));
  }
  void retry_unserved() {
    find_places();
    demand_.merge(unserved_);
  }
  // Leases to take back, for workers that have been idle for too long (split.cc); to be revoked by their
  // bounds, and only what has not started.
  std::vector<LeaseId> split_back();
  std::optional<double> next_split_s() const { return next_split_s_; }
  void set_next_split(std::optional<double> next_s) { next_split_s_ = next_s; }

 private:
  using Owner = std::pair<double, Worker*>;  // requested cores, relative to the worker's own

  LeaseState& open(LeaseId lease, Worker& worker, ArrayId array, Range first, std::int64_t memory_bytes);
  void change_load(const LeaseState& lease, double elements);
  void add_spare(LeaseId id, LeaseState& lease, std::uint64_t elements);
  void remove_spare(LeaseId id, LeaseState& lease, std::uint64_t elements);
  void charge(Worker& worker, const LeaseState& lease, double elements);
  void attach(LeaseId id, LeaseState& lease, Worker& worker);
  void attach_missing(Worker& worker);
  double end_s(const LeaseState& lease) const;
  std::optional<DemandKey> demand_key(Worker& worker);
  // A message may end a hundred elements of a worker: its place is found once, before it is needed.
  void index_later(Worker& worker);
  void find_places();
  void index(Worker& worker);
  void unindex(Worker& worker);
  std::vector<Worker*> idle_workers() const;
  std::vector<Owner> owners();
  enum class Split : std::uint8_t { taken, nothing_for_it, nothing_left };
  Split split_from(Worker& owner, const Worker& idle, std::vector<LeaseId>& taken);

  const std::vector<TaskArray>& arrays_;
  ReadyQueues& queues_;
  std::vector<IntervalMap<LeaseId>> holders_;  // by array
  std::unordered_map<LeaseId, LeaseState> leases_;
  std::map<WorkerId, Worker> workers_;
  std::map<std::string, Members> allocations_;
  std::set<LeaseId> incomplete_;  // gangs with nodes whose workers have not joined
  std::map<DemandKey, Worker*> demand_, unserved_;
  std::vector<Worker*> moving_;                             // those with Worker::moves
  mutable std::map<QueueId, std::int64_t> largest_memory_;  // as far as known since a worker came or went
  std::uint64_t leased_ = 0;
  std::size_t spares_ = 0;  // leases with spare elements that were not revoked
  std::uint64_t joined_ = 0;
  double now_s_ = 0;
  std::optional<double> next_split_s_;
};

}  // namespace wflow::engine
