// SPDX-License-Identifier: Apache-2.0
#include "converters/exchange/rows.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostSyncedOneByOne = 4096;  // limit of files
constexpr std::size_t kOutputBuffer = std::size_t{1} << 20;

void sync_path(const fs::path& path) {
  const FileDescriptor fd = open_file(path, O_RDONLY);
  if (::fsync(fd.get()) != 0) throw system_error(errno, fmt::format("cannot write {}", path.string()));
}

// For many small files, one call for the whole file system is cheaper.
void sync_below(const fs::path& folder) {
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (++files > kMostSyncedOneByOne) break;
    sync_path(entry.path());
  }
  if (files > kMostSyncedOneByOne) {
    const FileDescriptor fd = open_file(folder, O_RDONLY | O_DIRECTORY);
    if (::syncfs(fd.get()) != 0) throw system_error(errno, fmt::format("cannot write {}", folder.string()));
  }
  sync_path(folder);
}

fs::path plain(fs::path path) {
  path = path.lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // without a slash at the end
}

Error already_there(const fs::path& path) {
  return Error(ExitCode::usage,
               fmt::format("{} is there already; remove it, or name another folder", path.string()));
}

}  // namespace

NewFolder::NewFolder(fs::path target) : target_(plain(absolute_path(target))) {
  if (fs::symlink_status(target_).type() != fs::file_type::not_found) throw already_there(target_);
  temporary_ = target_.parent_path() / ("." + target_.filename().string() + ".partial");
  make_directories(temporary_);
  lock_ = open_file(temporary_, O_RDONLY | O_DIRECTORY);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    const fs::path other = temporary_;
    published_ = true;  // this process must not remove it
    throw Error(ExitCode::usage,
                fmt::format("another process writes {} now (in {})", target_.string(), other.string()));
  }
  for (const auto& entry : fs::directory_iterator(temporary_)) fs::remove_all(entry.path());
}

NewFolder::~NewFolder() {
  if (published_) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void NewFolder::publish() {
  sync_below(temporary_);
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) throw already_there(target_);
    // On file systems without this flag, rename can replace only an empty folder.
    if (errno != EINVAL || ::rename(temporary_.c_str(), target_.c_str()) != 0)
      throw system_error(errno, fmt::format("cannot make {}", target_.string()));
  }
  published_ = true;
  sync_directory(target_.parent_path());
}

OutputFile::OutputFile(fs::path path)
    : path_(std::move(path)), fd_(open_file(path_, O_WRONLY | O_CREAT | O_EXCL)) {}

void OutputFile::write(std::span<const std::uint8_t> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void OutputFile::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > kOutputBuffer) flush();
  if (bytes.size() > kOutputBuffer) {
    write_all(fd_.get(), bytes, path_);
  } else {
    buffer_ += bytes;
  }
}

void OutputFile::flush() {
  write_all(fd_.get(), buffer_, path_);
  buffer_.clear();
}

void OutputFile::close() {
  flush();
  if (::close(fd_.release()) != 0) throw system_error(errno, fmt::format("cannot write {}", path_.string()));
}

}  // namespace wflow::converters
