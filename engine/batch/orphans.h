// SPDX-License-Identifier: Apache-2.0
// Tasks that outlived their worker: when agent and guardian are killed together, no process is left to end
// the processes of their tasks. These must end before the tasks run again: both would write the same files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/control_group.h"
#include "base/file.h"

namespace wflow::engine::batch {

// Processes that this process adopted since all of their parents have died: those of a worker's tasks on this
// machine whose guardian and agent were killed at once, even if they changed their session and environment.
// (While guardian or agent lives, it ends the processes below it.)
class AdoptedProcesses {
 public:
  AdoptedProcesses();  // this process becomes the one to which orphans below it go (a subreaper)

  // Kills them, and reaps those that have ended; how many lived.
  std::size_t end_all() const;

 private:
  std::set<pid_t> before_;  // children that the caller's program had before it became this one
};

// Ends every process of this host and user that a task of the worker has started: known by the event file in
// its environment, or by its control group (base/control_group.h). No call waits: the coordinator continues
// meanwhile.
class OrphanEnd {
 public:
  OrphanEnd(const std::filesystem::path& campaign, std::string worker)
      : worker_(std::move(worker)), groups_(campaign) {}

  // Kills the remaining processes. True if none is left, or if some have not ended after 10 s.
  // To be called again when a descriptor is readable, and after kAgain_s at the latest.
  bool step(double now_s);
  static constexpr double kAgain_s = 0.1;
  // Each becomes readable when a process that was killed has ended.
  std::vector<int> descriptors() const;
  std::size_t count() const { return found_.size(); }  // so far

 private:
  bool some_have_ended();

  std::string worker_;
  ControlGroups groups_;
  std::set<pid_t> found_;
  std::map<pid_t, FileDescriptor> killed_;  // process descriptors
  double give_up_s_ = 0;                    // 0: not begun
  double next_look_s_ = 0;
};

}  // namespace wflow::engine::batch
