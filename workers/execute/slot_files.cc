// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/slot_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/error.h"

namespace wflow::workers {

namespace {

// The modification time of an empty directory. Every new entry changes it. The present time would not work: a
// task may end within one tick of the file system's clock.
constexpr timespec kUntouched{1, 0};

bool untouched(const std::string& directory) {
  struct stat status {};
  return ::stat(directory.c_str(), &status) == 0 && status.st_mtim.tv_sec == kUntouched.tv_sec &&
         status.st_mtim.tv_nsec == kUntouched.tv_nsec;
}

void set_untouched(const std::string& directory) {
  const std::array<timespec, 2> times = {kUntouched, kUntouched};
  if (::utimensat(AT_FDCWD, directory.c_str(), times.data(), 0) != 0) {
    throw system_error(errno, "cannot set the time of " + directory);
  }
}

// Moves into an existing directory, file by file, and replaces files of the same name.
void merge(const std::filesystem::path& from, const std::filesystem::path& to) {
  make_directories(to);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const auto target = to / entry.path().filename();
    std::error_code error;
    if (entry.is_directory(error) && !entry.is_symlink(error) &&
        std::filesystem::is_directory(target, error)) {
      merge(entry.path(), target);
    } else if (::rename(entry.path().c_str(), target.c_str()) != 0) {
      throw system_error(errno, fmt::format("cannot move {} to {}", entry.path().string(), to.string()));
    }
  }
}

}  // namespace

SlotFiles::SlotFiles(const std::filesystem::path& directory, std::size_t slot) {
  const std::string base = (directory / fmt::format("slot-{}", slot)).string();
  events_ = base + ".events";
  out_ = base + ".out";
  err_ = base + ".err";
  directory_ = base + ".dir";
}

void SlotFiles::open_output() {
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;
  if (!out_fd_) out_fd_ = open_file(out_, kFlags, 0600);
  if (!err_fd_) err_fd_ = open_file(err_, kFlags, 0600);
}

bool SlotFiles::printed() const {
  struct stat out {};
  struct stat err {};
  return ::fstat(out_fd(), &out) != 0 || ::fstat(err_fd(), &err) != 0 || out.st_size + err.st_size > 0;
}

void SlotFiles::empty_output() {
  if (::ftruncate(out_fd(), 0) != 0 || ::ftruncate(err_fd(), 0) != 0) {
    throw system_error(errno, "cannot empty " + out_);
  }
}

void SlotFiles::make_directory() {
  if (::mkdir(directory_.c_str(), 0777) != 0 && errno != EEXIST)
    throw system_error(errno, "cannot make " + directory_);
  set_untouched(directory_);
  made_ = true;
}

const std::string& SlotFiles::enter(const std::string& target) {
  struct stat status {};
  if (::stat(target.c_str(), &status) == 0) return target;
  if (!made_) make_directory();
  return directory_;
}

void SlotFiles::discard() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
  made_ = false;
}

void SlotFiles::leave(const std::string& target) {
  if (untouched(directory_)) return;
  made_ = false;
  std::error_code error;
  if (!std::filesystem::exists(directory_, error)) return;
  if (std::filesystem::is_empty(directory_, error) && !error) return make_directory();
  try {
    move_to(target);
  } catch (...) {
    // The task has failed with it; the next task must not find the files.
    std::filesystem::remove_all(directory_, error);
    throw;
  }
}

void SlotFiles::move_to(const std::string& target) {
  make_directories(std::filesystem::path(target).parent_path());
  if (::rename(directory_.c_str(), target.c_str()) == 0) return;
  if (errno == EXDEV) return copy_to(target);
  // The target exists and is not empty: an earlier execution left files there.
  if (errno != EEXIST && errno != ENOTEMPTY) {
    throw system_error(errno, fmt::format("cannot move {} to {}", directory_, target));
  }
  move_into(directory_, target);
}

// For a step's directory that is a link to another file system. Copies beside the target first, because
// readers of the target must not see a part of the files.
void SlotFiles::copy_to(const std::string& target) {
  const std::string beside =
      fmt::format("{}.tmp.{}.{}", target, ::getpid(), std::filesystem::path(directory_).stem().string());
  std::error_code error;
  std::filesystem::remove_all(beside, error);
  std::filesystem::copy(
      directory_, beside,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks, error);
  const auto refuse = [&](std::error_code why) {
    std::error_code ignored;
    std::filesystem::remove_all(beside, ignored);
    throw system_error(why.value(), fmt::format("cannot copy {} to {}", directory_, target));
  };
  if (error) refuse(error);
  if (::rename(beside.c_str(), target.c_str()) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) refuse({errno, std::generic_category()});
    move_into(beside, target);
  }
  std::filesystem::remove_all(directory_, error);
}

void SlotFiles::move_into(const std::string& from, const std::string& target) {
  try {
    merge(from, target);
    std::filesystem::remove_all(from);
  } catch (const std::filesystem::filesystem_error& failed) {
    throw Error(ExitCode::system, fmt::format("cannot move {} to {}: {}", from, target, failed.what()));
  }
}

}  // namespace wflow::workers
