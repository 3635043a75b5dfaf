// SPDX-License-Identifier: Apache-2.0
// The study's worker groups: which steps each serves, and what of them this machine starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "specs/study/study.h"

namespace wflow::engine {

struct Group {
  std::string name;
  int slots = 0;                      // as the study says; 0: it does not
  std::vector<std::string> machines;  // parts of host names; empty: any
  bool pin = false;                   // its tasks have processors of their own
  std::vector<bool> pools;            // which it serves: WorkerCapacity::pools
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
  // Why a worker on `host` that says it is of this group can't be one.
  std::optional<std::string> reason_to_refuse(const std::string& group, const std::string& host) const;

 private:
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
