// SPDX-License-Identifier: Apache-2.0
#include "base/process_handle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/process.h"

namespace wflow {

namespace {

constexpr int kStartTimeField = 22;  // of /proc/<pid>/stat, counted from 1

// A small file of /proc, or nothing. Reading one must not throw: processes end at any time.
std::string read_proc(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer{};
  const ssize_t got = file ? ::read(file.get(), buffer.data(), buffer.size()) : 0;
  return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : std::string();
}

// 0: no such process. The name of the program stands in parentheses and may hold spaces and parentheses.
std::uint64_t start_ticks(pid_t pid) {
  const std::string stat = read_proc(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::string_view rest = std::string_view(stat).substr(name_end + 1);  // " S 1 ...": field 3 follows
  for (int field = 3; field < kStartTimeField; ++field) {
    const std::size_t space = rest.find(' ', 1);
    if (space == std::string_view::npos) return 0;
    rest.remove_prefix(space);
  }
  rest.remove_prefix(1);
  std::uint64_t ticks = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), ticks);
  return ticks;
}

std::string boot_id() {
  const std::string text = read_proc("/proc/sys/kernel/random/boot_id");
  return text.substr(0, text.find('\n'));
}

std::string pid_namespace() {
  std::array<char, 64> target{};
  const ssize_t size = ::readlink("/proc/self/ns/pid", target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : std::string();
}

bool has_ended(int descriptor) {
  pollfd poll{descriptor, POLLIN, 0};
  return ::poll(&poll, 1, 0) == 1;
}

}  // namespace

ProcessIdentity own_identity() {
  return identify(::getpid());
}

ProcessIdentity identify(pid_t pid) {
  const std::uint64_t ticks = pid > 0 ? start_ticks(pid) : 0;
  if (ticks == 0) return {};
  return {host_name(), boot_id(), pid_namespace(), pid, ticks};
}

ProcessHandle::ProcessHandle(const ProcessIdentity& process) {
  if (!process.known() || !process.same_table(own_identity())) return;
  const pid_t pid = static_cast<pid_t>(process.pid);
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!descriptor) {
    // EINVAL: the number is that of a thread now.
    was_gone_ = errno == ESRCH || errno == EINVAL;
    if (!was_gone_) throw system_error(errno, fmt::format("cannot watch process {}", pid));
    return;
  }
  // Compared after the opening: what has this start time now is what the descriptor holds.
  const std::uint64_t ticks = start_ticks(pid);
  if (ticks == process.start_ticks) {
    descriptor_ = std::move(descriptor);
  } else {
    // Without a start time it ended just now, or /proc hides it (another user's): then nothing is known.
    was_gone_ = ticks != 0 || wflow::has_ended(descriptor.get());
  }
}

bool ProcessHandle::ended() const {
  return was_gone_ || (open() && wflow::has_ended(descriptor()));
}

bool ProcessHandle::send_signal(int number) const {
  if (!open()) return false;
  if (::syscall(SYS_pidfd_send_signal, descriptor(), number, nullptr, 0) == 0) return true;
  if (errno == ESRCH) return false;
  throw system_error(errno, "cannot signal a process");
}

}  // namespace wflow
