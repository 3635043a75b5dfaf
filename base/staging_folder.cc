// SPDX-License-Identifier: Apache-2.0
#include "base/staging_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "base/error.h"

namespace wflow {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLockFile = "lock";

// A file, not the folder: NFS locks only what is open for writing.
FileDescriptor open_lock(const fs::path& folder) {
  return FileDescriptor(::open((folder / kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

bool is_still_there(const fs::path& folder, int lock) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(lock, &ours) == 0 && ::stat((folder / kLockFile).c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

// Where a file system has no locks, nothing says that the other process has ended: its folder stays.
void remove_left_folders(const fs::path& parent, std::string_view prefix) {
  std::error_code ignored;
  for (fs::directory_iterator at(parent, ignored), end; !ignored && at != end; at.increment(ignored)) {
    std::error_code none;
    if (!at->path().filename().string().starts_with(prefix) || !at->is_directory(none) || at->is_symlink(none))
      continue;
    const FileDescriptor lock = open_lock(at->path());
    if (lock.get() >= 0 && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(at->path(), none);
  }
}

}  // namespace

StagingFolder::StagingFolder(const fs::path& parent, std::string_view prefix) {
  remove_left_folders(parent, prefix);
  for (;;) {
    std::string name = (parent / (std::string(prefix) + "-XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr) throw system_error(errno, "cannot make " + name);
    path_ = name;
    lock_ = open_lock(path_);
    // Another process may have taken the folder for one that was left, before it was locked.
    if (lock_.get() < 0 && errno == ENOENT) continue;
    if (lock_.get() < 0) {
      const int error = errno;
      ::rmdir(name.c_str());
      throw system_error(error, "cannot write in " + name);
    }
    if (::flock(lock_.get(), LOCK_EX) != 0 || is_still_there(path_, lock_.get())) return;
  }
}

StagingFolder::~StagingFolder() {
  std::error_code none;
  fs::remove_all(path_, none);
}

}  // namespace wflow
