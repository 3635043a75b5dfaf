// SPDX-License-Identifier: Apache-2.0
// Control groups of workers' tasks (cgroups(7)). A process can leave its session, its parents and its
// environment, but not its group: this is how tasks are found whose worker's processes were all killed at
// once. Only where the system lets this user make groups (root, or a delegated subtree of version 2);
// elsewhere nothing is made and nothing found.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_identity.h"

namespace wflow {

// The calling process's own group in the hierarchy of these controllers, for example "memory", or "" for
// version 2: an absolute path below the place where the hierarchy is mounted. Nothing where there is no such
// hierarchy.
std::optional<std::string> own_group(std::string_view controllers);

// Below the calling process's own group. In version 2, or where that is not to be written in one of version 1
// that limits nothing here: systemd, pids or freezer. Empty: there is none.
std::filesystem::path group_folder();

// The groups of one campaign's workers on this machine, below a folder (empty: there are none).
class ControlGroups {
 public:
  explicit ControlGroups(const std::filesystem::path& campaign,
                         std::filesystem::path folder = group_folder());

  // The calling process and all that it starts from now on are in a new group, which belongs to this process
  // and to `other`. Empty where that is refused.
  std::filesystem::path enter(const ProcessIdentity& other) const;

  // Kills who is in groups whose owners, without the calling process, have ended, and gives them. Groups of
  // other PID namespaces are left out: their owners can't be judged from here. Such groups that are empty are
  // removed, also those of other campaigns.
  std::vector<pid_t> end_abandoned() const;

 private:
  std::filesystem::path folder_;
  std::string prefix_;
};

// The calling process goes back to where it was, and removes the group if nobody else is in it.
void leave_group(const std::filesystem::path& group);

}  // namespace wflow
