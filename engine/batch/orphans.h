// SPDX-License-Identifier: Apache-2.0
// Tasks that outlived their worker: when agent and guardian are killed together, nobody is left to end what
// their tasks had started. It must end before the tasks run again: two would write the same files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"

namespace wflow::engine::batch {

// Ends every process of this host and user that a task of the worker has started (known by the event file in
// its environment). No call waits: the coordinator goes on meanwhile.
class OrphanEnd {
 public:
  explicit OrphanEnd(std::string worker) : worker_(std::move(worker)) {}

  // Kills what is left. True when nothing is, or when it has not ended after 10 s: waiting is of no use then.
  // To be called again when a descriptor is readable, and after kAgain_s at the latest.
  bool step(double now_s);
  static constexpr double kAgain_s = 0.1;
  // Each becomes readable when a process that was killed has ended.
  std::vector<int> descriptors() const;
  std::size_t count() const { return found_.size(); }  // so far

 private:
  bool some_have_ended();

  std::string worker_;
  std::set<pid_t> found_;
  std::map<pid_t, FileDescriptor> killed_;  // process descriptors
  double give_up_s_ = 0;                    // 0: not begun
  double next_look_s_ = 0;
};

}  // namespace wflow::engine::batch
