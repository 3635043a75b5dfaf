// SPDX-License-Identifier: Apache-2.0
// Control groups of workers' tasks (cgroups(7)). A process can leave its session, its parents and its
// environment, but not its group: this is how tasks are found whose worker's processes were all killed at
// once. This works only where the system lets this user make groups (root, or a delegated subtree of version
// 2); elsewhere these functions do nothing.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain_types.h"

namespace wflow {

// The calling process's own group in the hierarchy of these controllers, for example "memory", or "" for
// version 2: an absolute path below the mount point of the hierarchy. Nothing if there is no such
// hierarchy.
std::optional<std::string> own_group(std::string_view controllers);

// The folder for new groups, below the calling process's own group: in version 2 or, where that is not
// writable, in a hierarchy of version 1 that sets no limits here (systemd, pids or freezer). Empty if there
// is none.
std::filesystem::path group_folder();

// The groups of one campaign's workers on this machine, below a folder (empty: there are none).
class ControlGroups {
 public:
  explicit ControlGroups(const std::filesystem::path& campaign,
                         std::filesystem::path folder = group_folder());

  // Moves the calling process, and so all processes that it starts later, into a new group, whose owners are
  // this process and `other`. Empty if the system refuses.
  std::filesystem::path enter(const ProcessIdentity& other) const;

  // Kills the processes in groups whose owners, the calling process not counted, have ended, and returns
  // their pids. Skips groups of other PID namespaces: this process cannot tell whether their owners live.
  // Removes such groups that are empty, also those of other campaigns.
  std::vector<pid_t> end_abandoned() const;

 private:
  std::filesystem::path folder_;
  std::string prefix_;
};

// Moves the calling process back to its former group, and removes `group` if no other process is in it.
void leave_group(const std::filesystem::path& group);

}  // namespace wflow
