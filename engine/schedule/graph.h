// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/store/batch.h"
#include "specs/plan/plan.h"
#include "specs/study/study.h"

namespace wflow::engine {

// The scheduler's view of a plan. Deeper steps have priority, so that a sample's chain is finished (and its
// block converted) before new samples begin.
// `runs_here`: all of it runs on this machine, whatever scheduler the study names.
// `in_one`: its workers run on the nodes of one allocation, whatever the study names.
std::vector<ArraySpec> array_specs(const specs::Plan& plan, bool runs_here = false, bool in_one = false);

// Applies the commits of earlier coordinators; call it before start().
void restore_states(Scheduler& scheduler, const store::Restored& restored);

struct Group {
  std::string name;
  int slots = 0;                      // from the study; 0: not given
  std::vector<std::string> machines;  // parts of host names; empty: any
  bool pin = false;                   // its tasks have processors of their own
  std::vector<bool> pools;            // which it serves: WorkerCapacity::pools
  bool in_allocations = false;        // its workers are wanted in allocations of a scheduler
};

// Merlin's rule: what no group serves goes to a group of its own, "default"; a study without groups has that
// alone.
class Groups {
 public:
  explicit Groups(const specs::Study& study);

  const std::vector<Group>& all() const { return groups_; }
  const Group* find(const std::string& name) const;
  // Steps that the same groups serve are one pool.
  std::uint32_t pool_of(std::size_t study_step) const { return pool_of_[study_step]; }
  // Those that run a step, at least one.
  std::vector<const Group*> serving(std::size_t study_step) const;
  // Why a worker of this group must be refused. Never because of its machine: a user who starts a worker
  // decides where it runs.
  std::optional<std::string> reason_to_refuse(const std::string& group) const;
  // The group of a worker that was started without one: "default", the only one, or the only one that wants
  // this machine. Error{usage} if there is none.
  const Group& of_worker_on(const std::string& host) const;

 private:
  std::string names() const;

  std::vector<Group> groups_;
  std::vector<std::uint32_t> pool_of_;
};

bool may_run_on(const Group& group, const std::string& host);

// Slots of a worker of each group on this machine. A group's own number counts, others have as many as there
// are cores; `limit` (0: none) is divided among them all.
std::vector<int> local_slots(const std::vector<Group>& groups, int cores, int limit);

// Throws Error{usage} where groups with so many slots each cannot have processors of their own on this
// machine.
void check_pins(const std::vector<Group>& groups, const std::vector<int>& slots, int cores);

}  // namespace wflow::engine
