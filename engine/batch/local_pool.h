// SPDX-License-Identifier: Apache-2.0
// Workers on this machine: started by the coordinator, watched by process descriptors, so that a death is
// known at once.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace wflow::engine::batch {

struct LocalWorkerOptions {
  std::string group = "default";
  int slots = 1;
  bool pin = false;
  bool zero = false;  // completes tasks without running them: benchmarks of the coordinator
  double zero_failures = 0;
};

// A connection a worker: this process may open as many files as the system lets it. What it starts gets the
// limit from before, because programs that use select() break beyond 1024.
class FileLimit {
 public:
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
  // drains it.
  void start(const LocalWorkerOptions& options);
  // Watches a process of this host that an earlier coordinator has started. False if it has already ended.
  bool adopt(pid_t pid, const std::string& group);
  // Descriptors that become readable when a process ends.
  std::vector<int> descriptors() const;
  // Processes that have ended since the last call.
  std::vector<pid_t> take_ended();
  bool watches(pid_t pid) const { return processes_.contains(pid); }
  bool empty() const { return processes_.empty(); }
  bool has(const std::string& group) const;
  // What the group's workers on this machine print.
  std::filesystem::path log_of(const std::string& group) const;
  void kill_all(int signal) const;

 private:
  struct Process {
    FileDescriptor descriptor;
    bool child = false;
    std::string group;
  };
  FileLimit files_;
  std::filesystem::path campaign_;
  std::map<pid_t, Process> processes_;
};

}  // namespace wflow::engine::batch
