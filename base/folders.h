// SPDX-License-Identifier: Apache-2.0
// Folders that only one user, or only one process, may use. The checks of owner and mode follow those of ssh
// for its keys.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/file.h"

namespace wflow {

// Makes the folder with mode 0700, its parents as make_directories() does. An existing folder stays
// unchanged. Error{system}.
void make_private_folder(const std::filesystem::path& folder);

// Works like make_directories(), but ignores a umask that would make the folders writable by everybody:
// require_trusted_folder() would refuse them.
void make_own_directories(const std::filesystem::path& path);

// Error{system} with a sentence if `path` belongs to another user, or its mode lets others read, write or
// enter it. `danger`: what they could do then. The superuser may use files of other users. A symbolic link is
// checked as its target. A missing file passes: opening it reports that.
void require_private(const std::filesystem::path& path, std::string_view danger);

// Error{system} with a sentence if another user could replace `folder` or add files to it. As ssh does it,
// the folder and its parents (up to $HOME or the root) must belong to this user or to the superuser, and
// others must not have write access. Exceptions: groups that this user is in may write, and so may everybody
// where a parent has the sticky bit (/tmp). Folders inside one that $WFLOW_TRUST names (several: a:b) are not
// checked. `danger`: what the other user could do. Missing parts of the path are not checked.
void require_trusted_folder(const std::filesystem::path& folder, std::string_view danger);

// True if it is a folder that only its user may use: false if it is missing, and for a symbolic link.
bool is_private_folder(const std::filesystem::path& folder);

// A new folder `parent`/`prefix`-XXXXXX for unfinished files of this process, while others make the same
// files. It holds a lock file; the kernel releases the lock when the process ends, however it ends. The
// constructor removes folders of the same prefix whose process has ended, the destructor removes this one.
class StagingFolder {
 public:
  // `parent` must exist. Error{system}.
  StagingFolder(const std::filesystem::path& parent, std::string_view prefix);
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  ~StagingFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;
};

}  // namespace wflow
