// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace wflow {

namespace fs = std::filesystem;

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int FileDescriptor::release() {
  return std::exchange(fd_, -1);
}

FileDescriptor open_file(const fs::path& path, int flags, int mode) {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0) return FileDescriptor(fd);
    if (errno == EINTR) continue;
    const bool writes = (flags & (O_WRONLY | O_RDWR)) != 0;
    if (errno == ENOENT && !writes)
      throw Error(ExitCode::data, fmt::format("no such file: {}", path.string()));
    throw system_error(errno, fmt::format("cannot {} {}", writes ? "write" : "read", path.string()));
  }
}

std::string read_file(const fs::path& path) {
  const FileDescriptor fd = open_file(path, O_RDONLY);
  struct stat status {};
  if (::fstat(fd.get(), &status) == 0 && S_ISDIR(status.st_mode)) {
    throw Error(ExitCode::data, fmt::format("{} is a directory, a file was expected", path.string()));
  }
  std::string bytes;
  std::array<char, 1 << 16> buffer{};
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got == 0) return bytes;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(errno, fmt::format("cannot read {}", path.string()));
    bytes.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::size_t read_at(int fd, std::uint64_t offset, void* into, std::size_t bytes, const fs::path& path) {
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t got =
        ::pread(fd, static_cast<char*>(into) + have, bytes - have, static_cast<off_t>(offset + have));
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(errno, fmt::format("cannot read {}", path.string()));
    have += static_cast<std::size_t>(got);
  }
  return have;
}

void write_all(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw system_error(errno, fmt::format("cannot write {}", path.string()));
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

void sync_directory(const fs::path& directory) {
  const fs::path path = directory.empty() ? fs::path(".") : directory;
  const FileDescriptor fd = open_file(path, O_RDONLY | O_DIRECTORY);
  // Some network file systems cannot sync a directory and return EINVAL: their rename is already durable.
  if (::fsync(fd.get()) != 0 && errno != EINVAL)
    throw system_error(errno, fmt::format("cannot sync {}", path.string()));
}

namespace {

constexpr std::string_view kTemporary = ".tmp-";

fs::path temporary_name(const fs::path& target) {
  return target.parent_path() / ("." + target.filename().string() + temporary_mark());
}

void sync_file(int fd, const fs::path& path) {
  if (::fsync(fd) != 0) throw system_error(errno, fmt::format("cannot write {} to disk", path.string()));
}

}  // namespace

void remove_temporaries(const fs::path& directory, std::string_view name) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string file = entry.path().filename().string();
    const std::size_t mark = file.rfind(kTemporary);
    if (mark == std::string::npos || !file.starts_with('.')) continue;
    if (name.empty() || std::string_view(file).substr(1, mark - 1) == name) fs::remove(entry.path(), ignored);
  }
}

DurableFile::DurableFile(fs::path target) : target_(std::move(target)), temporary_(temporary_name(target_)) {}

DurableFile::~DurableFile() {
  if (!published_) ::unlink(temporary_.c_str());
}

void DurableFile::publish() {
  if (is_special_file(target_))
    throw Error(ExitCode::usage,
                fmt::format("{} is a device or a pipe; name a file to write", target_.string()));
  sync_file(open_file(temporary_, O_RDONLY).get(), target_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    throw system_error(errno, fmt::format("cannot write {}", target_.string()));
  }
  published_ = true;
  sync_directory(target_.parent_path());
}

// Uses the descriptor that wrote: another one may not receive its errors, and some file systems (NFS, quotas)
// report them only at close.
void write_file_durably(const fs::path& path, std::string_view bytes, int mode) {
  if (is_special_file(path)) return write_special_file(path, bytes);
  const fs::path temporary = temporary_name(path);
  FileDescriptor fd = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL, mode);
  try {
    write_all(fd.get(), bytes, path);
    sync_file(fd.get(), path);
    if (::close(fd.release()) != 0 && errno != EINTR)
      throw system_error(errno, fmt::format("cannot write {}", path.string()));
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      throw system_error(errno, fmt::format("cannot write {}", path.string()));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(path.parent_path());
}

namespace {

std::string hex(const XXH128_hash_t& hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

std::string hash_bytes(std::string_view bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string hash_file(const fs::path& path) {
  const FileDescriptor fd = open_file(path, O_RDONLY);
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  XXH3_128bits_reset(state.get());
  std::string buffer(1 << 20, '\0');
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got == 0) return hex(XXH3_128bits_digest(state.get()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(errno, fmt::format("cannot read {}", path.string()));
    XXH3_128bits_update(state.get(), buffer.data(), static_cast<std::size_t>(got));
  }
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw system_error(error.value(), fmt::format("cannot create directory {}", path.string()));
}

fs::path current_directory() {
  std::error_code error;
  fs::path path = fs::current_path(error);
  if (error) {
    throw system_error(error.value(),
                       "the current directory is not there any more; change to another one (cd)");
  }
  return path;
}

fs::path absolute_path(const fs::path& path) {
  return path.is_absolute() ? path : current_directory() / path;
}

namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";  // .NAME.tmp-PID-NUMBER-HOST
constexpr std::chrono::hours kOldAge{24};

// A hash, because a host's name may be long and contain blanks.
std::string host_mark() {
  constexpr std::size_t kDigits = 8;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return hash_bytes(name.data()).substr(0, kDigits);
}

struct Temporary {
  std::string name;  // the file that it was meant to replace
  std::int64_t process = 0;
  std::string host;  // empty: written by an earlier version
};

std::optional<Temporary> read_name(const std::string& file) {
  const std::size_t mark = file.rfind(kTemporaryMark);
  if (mark == std::string::npos || mark == 0 || !file.starts_with('.')) return std::nullopt;
  const auto parts = text::split(file.substr(mark + kTemporaryMark.size()), '-');
  const auto process = text::to_integer(parts.front());
  if (!process || *process <= 0) return std::nullopt;
  return Temporary{file.substr(1, mark - 1), *process, parts.size() > 2 ? parts[2] : std::string()};
}

bool lives(std::int64_t process) {
  return ::kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH;
}

bool is_old(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - time > kOldAge;
}

}  // namespace

std::string temporary_mark() {
  static std::atomic<unsigned> counter{0};
  static const std::string host = host_mark();
  return fmt::format("{}{}-{}-{}", kTemporaryMark, ::getpid(), counter.fetch_add(1), host);
}

void remove_left_files(const fs::path& directory, std::string_view name) {
  const std::string here = host_mark();
  std::error_code ignored;
  for (fs::directory_iterator at(directory.empty() ? fs::path(".") : directory, ignored), end;
       !ignored && at != end; at.increment(ignored)) {
    const auto file = read_name(at->path().filename().string());
    if (!file || (!name.empty() && file->name != name)) continue;
    std::error_code none;
    const bool left = file->host == here ? !lives(file->process) : is_old(at->path());
    if (left && at->is_regular_file(none)) fs::remove(at->path(), none);
  }
}

bool is_special_file(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode)) return !S_ISDIR(status.st_mode);
  const std::string text = path.lexically_normal().string();
  return text.starts_with("/dev/") || text.starts_with("/proc/");
}

void write_special_file(const std::filesystem::path& path, std::string_view bytes) {
  struct stat named {};
  struct stat output {};
  const bool is_output = ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &output) == 0 &&
                         named.st_dev == output.st_dev && named.st_ino == output.st_ino;
  if (is_output) {
    std::fflush(stdout);  // earlier output comes first
    return write_all(STDOUT_FILENO, bytes, path);
  }
  write_all(open_file(path, O_WRONLY).get(), bytes, path);
}

}  // namespace wflow
