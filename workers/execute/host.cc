// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/control_group.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/resources.h"
#include "base/text.h"

namespace wflow::workers {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

int usable_cores() {
  return static_cast<int>(usable_cpus().size());
}

namespace {

// The number in a file, if there is one: control groups write "max", or a number beyond all memory.
std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(path, missing)) return std::nullopt;
  try {
    return text::to_integer(text::trim(read_file(path)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The limit of this process's control group and of those above it.
std::int64_t control_group_limit(std::int64_t limit) {
  for (const bool unified : {false, true}) {
    const auto own_path = own_group(unified ? "" : "memory");
    if (!own_path) continue;
    const std::filesystem::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (auto group = std::filesystem::path(*own_path).relative_path();; group = group.parent_path()) {
      const auto own = number_in(root / group / (unified ? "memory.max" : "memory.limit_in_bytes"));
      if (own && *own > 0) limit = std::min(limit, *own);
      if (group.empty()) break;
    }
  }
  return limit;
}

}  // namespace

std::int64_t usable_memory_bytes() {
  std::int64_t limit = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  limit = control_group_limit(limit);
  const char* slurm = std::getenv("SLURM_MEM_PER_NODE");
  const auto mebibytes = slurm == nullptr ? std::nullopt : text::to_integer(slurm);
  if (mebibytes && *mebibytes > 0 && *mebibytes < (limit >> 20)) limit = *mebibytes << 20;
  return limit;
}

namespace {

constexpr int kThreads = 2;        // used by the connection to the coordinator
constexpr rlim_t kOpenFiles = 48;  // about twice the number of files that an idle agent has open

rlim_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string named(rlim_t value) {
  return value == RLIM_INFINITY ? "none" : std::to_string(value);
}

}  // namespace

std::string limit_behind(int error_number) {
  if (error_number == EMFILE)
    return fmt::format("; the limit on open files is {} (ulimit -n)", named(limit_of(RLIMIT_NOFILE)));
  if (error_number == EAGAIN)
    return fmt::format("; the limit on this user's processes is {} (ulimit -u)",
                       named(limit_of(RLIMIT_NPROC)));
  return {};
}

void check_limits() {
  const rlim_t files = limit_of(RLIMIT_NOFILE);
  if (files < kOpenFiles) {
    throw Error(ExitCode::system,
                fmt::format("a worker needs to open {} files and the limit is {}; raise it (ulimit -n {})",
                            kOpenFiles, files, 2 * kOpenFiles));
  }
  if (const int error = try_threads(kThreads); error != 0)
    throw Error(ExitCode::system, fmt::format("a worker cannot start its threads{}", limit_behind(error)));
}

namespace {

constexpr std::size_t kProbeBytes = 1 << 16;
constexpr double kWell_s = 1;

// The same causes as in is_disk_trouble().
constexpr std::array<int, 4> kTroubles = {ENOSPC, EDQUOT, EROFS, EIO};

bool is_trouble(int error) {
  return std::find(kTroubles.begin(), kTroubles.end(), error) != kTroubles.end();
}

// Writes some blocks into a file without a name, or into a file that is removed at once if the file system
// has no such files. Returns the errno; 0: the write succeeded, or failed for another cause.
int write_error(const std::string& directory) {
  FileDescriptor file(::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!file && errno == EOPNOTSUPP) {
    const std::string name = directory + "/.wflow-probe." + host_name() + "." + std::to_string(::getpid());
    file = FileDescriptor(::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
    if (file) ::unlink(name.c_str());
  }
  if (!file) return is_trouble(errno) ? errno : 0;
  static const std::string zeros(kProbeBytes, '\0');
  for (std::size_t done = 0; done < zeros.size();) {
    const ssize_t put = ::write(file.get(), zeros.data() + done, zeros.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return is_trouble(errno) ? errno : 0;
    done += static_cast<std::size_t>(put);
  }
  return ::fdatasync(file.get()) != 0 && is_trouble(errno) ? errno : 0;
}

// Returns the trouble that statvfs() reports, without a write; 0: none.
int reported_error(const std::string& directory) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0) return is_trouble(errno) ? errno : 0;
  if ((disk.f_flag & ST_RDONLY) != 0) return EROFS;
  const bool no_blocks = disk.f_blocks > 0 && disk.f_bavail == 0;
  const bool no_files = disk.f_files > 0 && disk.f_favail == 0;
  return no_blocks || no_files ? ENOSPC : 0;
}

int error_in(const std::string& directory) {
  const int reported = reported_error(directory);
  return reported != 0 ? reported : write_error(directory);
}

}  // namespace

bool DiskProbe::is_in_trouble(const std::string& directory) {
  if (directory.empty()) return false;
  const bool was_well = directory == well_ && steady_now_s() - well_s_ < kWell_s;
  if ((was_well ? reported_error(directory) : error_in(directory)) != 0) {
    failing_ = directory;
    return true;
  }
  if (!was_well) {
    well_ = directory;
    well_s_ = steady_now_s();
  }
  return false;
}

void DiskProbe::check() {
  if (failing_.empty()) return;
  if (const int error = error_in(failing_); error != 0)
    throw system_error(error, "cannot write in " + failing_);
  failing_.clear();
}

bool says_disk_trouble(std::string_view output) {
  return std::any_of(kTroubles.begin(), kTroubles.end(), [output](int error) {
    return output.find(std::string(": ") + std::strerror(error)) != std::string_view::npos;
  });
}

}  // namespace wflow::workers
