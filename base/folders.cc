// SPDX-License-Identifier: Apache-2.0
#include "base/folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow {

namespace {

constexpr unsigned kOthers = 077;
constexpr unsigned kOwnFolder = 0700;
constexpr unsigned kOwnFile = 0600;

std::optional<struct stat> look_at(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw system_error(errno, fmt::format("cannot look at {}", path.string()));
  }
  return status;
}

bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

std::filesystem::path real_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path real = std::filesystem::weakly_canonical(absolute_path(folder), error);
  if (error) throw system_error(error.value(), fmt::format("cannot look at {}", folder.string()));
  return real.has_filename() ? real : real.parent_path();
}

bool is_trusted_by_name(const std::filesystem::path& path) {
  const char* trusted = std::getenv("WFLOW_TRUST");
  if (trusted == nullptr) return false;
  const std::vector<std::string> folders = text::split(trusted, ':');
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return folder.starts_with('/') && is_inside(path, real_folder(folder));
  });
}

bool is_own_group(gid_t group) {
  if (group == ::getegid()) return true;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<std::size_t>(std::max(count, 0)));
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

// `may_be_sticky`: accept a folder where others can add files, but cannot replace them.
void require_trusted_owner_and_mode(const std::filesystem::path& path, bool may_be_sticky,
                                    std::string_view danger) {
  const auto status = look_at(path);
  if (!status) return;
  const uid_t user = ::geteuid();
  if (status->st_uid != user && status->st_uid != 0) {
    throw Error(ExitCode::system,
                fmt::format("{} belongs to another user (uid {}): {}; use wflow as that user, or trust the "
                            "folder: export WFLOW_TRUST={}",
                            path.string(), status->st_uid, danger, text::shell_quote(path.string())));
  }
  if (may_be_sticky && (status->st_mode & S_ISVTX) != 0) return;
  const bool all = (status->st_mode & S_IWOTH) != 0;
  const bool group = (status->st_mode & S_IWGRP) != 0 && !is_own_group(status->st_gid);
  if (!all && !group) return;
  const std::string remedy = status->st_uid == user ? fmt::format("chmod {}-w it", all && group ? "go"
                                                                                   : all        ? "o"
                                                                                                : "g")
                                                    : std::string("use another folder");
  throw Error(
      ExitCode::system,
      fmt::format("others can write to {} (mode {:04o}): {}; {}, or trust the folder: export "
                  "WFLOW_TRUST={}",
                  path.string(), status->st_mode & 07777U, danger, remedy, text::shell_quote(path.string())));
}

}  // namespace

void make_private_folder(const std::filesystem::path& folder) {
  if (folder.has_parent_path()) make_directories(folder.parent_path());
  if (::mkdir(folder.c_str(), kOwnFolder) != 0 && errno != EEXIST)
    throw system_error(errno, fmt::format("cannot create directory {}", folder.string()));
}

void make_own_directories(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.empty() || std::filesystem::is_directory(path, ignored)) return;
  make_own_directories(path.parent_path());
  make_directories(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) != 0)
    ::chmod(path.c_str(), status.st_mode & 07775U);
}

void require_private(const std::filesystem::path& path, std::string_view danger) {
  const auto status = look_at(path);
  if (!status) return;
  if (const uid_t user = ::geteuid(); user != 0 && status->st_uid != user) {
    throw Error(ExitCode::system, fmt::format("{} belongs to another user (uid {}): {}", path.string(),
                                              status->st_uid, danger));
  }
  if ((status->st_mode & kOthers) == 0) return;
  throw Error(ExitCode::system, fmt::format("others can get at {} (mode {:04o}): {}; chmod {:o} it",
                                            path.string(), status->st_mode & 07777U, danger,
                                            S_ISDIR(status->st_mode) ? kOwnFolder : kOwnFile));
}

void require_trusted_folder(const std::filesystem::path& folder, std::string_view danger) {
  const std::filesystem::path real = real_folder(folder);
  if (is_trusted_by_name(real)) return;
  const char* set = std::getenv("HOME");
  const std::filesystem::path home = set != nullptr && *set == '/' ? real_folder(set) : "/";
  for (std::filesystem::path at = real;; at = at.parent_path()) {
    require_trusted_owner_and_mode(at, at != real, danger);
    if (at == home || at == at.root_path()) return;
  }
}

bool is_private_folder(const std::filesystem::path& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & kOthers) == 0;
}

namespace fs = std::filesystem;

namespace {

constexpr const char* kLockFile = "lock";

// Locks a file, not the folder: NFS locks only files that are open for writing.
FileDescriptor open_lock(const fs::path& folder) {
  return FileDescriptor(::open((folder / kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

bool is_still_there(const fs::path& folder, int lock) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(lock, &ours) == 0 && ::stat((folder / kLockFile).c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

// On a file system without locks the end of the other process cannot be detected: its folder stays.
void remove_left_folders(const fs::path& parent, std::string_view prefix) {
  std::error_code ignored;
  for (fs::directory_iterator at(parent, ignored), end; !ignored && at != end; at.increment(ignored)) {
    std::error_code none;
    if (!at->path().filename().string().starts_with(prefix) || !at->is_directory(none) ||
        at->is_symlink(none))
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
    // Another process may have removed the folder as abandoned before it was locked.
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
