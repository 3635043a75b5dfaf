// SPDX-License-Identifier: Apache-2.0
#include "base/private_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/error.h"
#include "base/file.h"

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

}  // namespace

void make_private_folder(const std::filesystem::path& folder) {
  if (folder.has_parent_path()) make_directories(folder.parent_path());
  if (::mkdir(folder.c_str(), kOwnFolder) != 0 && errno != EEXIST)
    throw system_error(errno, fmt::format("cannot create directory {}", folder.string()));
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

bool is_private_folder(const std::filesystem::path& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & kOthers) == 0;
}

}  // namespace wflow
