// SPDX-License-Identifier: Apache-2.0
// Processes of this machine that the coordinator starts or watches: by process descriptors, so that it
// notices an end at once, and a signal never reaches another process with the same number.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/plain_types.h"
#include "base/process.h"

namespace wflow::engine::batch {

struct LocalWorkerOptions {
  std::string group = "default";
  int slots = 1;
  bool pin = false;
  std::uint64_t started_by = 0;  // epoch of the coordinator
  // Words before the command of the worker: it starts one on each node of an allocation. Then `slots` may be
  // 0: as many as each node gives.
  std::vector<std::string> launcher = {};
};

// A connection a worker: this process may open as many files as the system lets it. What it starts gets the
// limit from before, because programs that use select() break beyond 1024.
class FileLimit {
 public:
  // Throws Error{system} where even the most is too little for a coordinator (libzmq aborts then).
  FileLimit();
  ~FileLimit() { lower(); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  void lower() const;
  void raise() const;

 private:
  rlimit before_{};
};

// Cores that this process may use.
int usable_cores();

class LocalPool {
 public:
  explicit LocalPool(std::filesystem::path campaign) : campaign_(std::move(campaign)) {}
  // Starts `wflow worker`, which makes a session of its own: Ctrl-C reaches the coordinator only, which then
  // drains it. Gives its guardian, which is watched.
  ProcessIdentity start(const LocalWorkerOptions& options);
  // One that does not live is among the next take_ended().
  void watch(const ProcessIdentity& process);
  // Descriptors that become readable when a process ends.
  std::vector<int> descriptors() const;
  // True if take_ended() returns something without a wait.
  bool has_ended() const { return !ended_.empty(); }
  // Watched processes that have ended since the last call.
  std::vector<ProcessIdentity> take_ended();
  bool empty() const { return processes_.empty(); }
  // The file with the output of the group's workers on this machine.
  std::filesystem::path log_of(const std::string& group) const;
  // Nothing where the process has ended.
  void kill(const ProcessIdentity& process, int signal) const;
  void kill_all(int signal) const;

 private:
  struct Process {
    ProcessHandle handle;
    bool child = false;
  };
  FileLimit files_;
  std::filesystem::path campaign_;
  std::map<ProcessIdentity, Process> processes_;
  std::vector<ProcessIdentity> ended_;
};

}  // namespace wflow::engine::batch
