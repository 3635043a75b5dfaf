// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/disk_probe.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"

namespace wflow::workers {

namespace {

constexpr std::size_t kProbeBytes = 1 << 16;
constexpr double kWell_s = 1;

// As is_disk_trouble() has them.
constexpr std::array<int, 4> kTroubles = {ENOSPC, EDQUOT, EROFS, EIO};

bool is_trouble(int error) {
  return std::find(kTroubles.begin(), kTroubles.end(), error) != kTroubles.end();
}

// The errno of writing some blocks into a file without a name, or a file that is removed at once where there
// are none; 0: it went well, or failed for another cause.
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

// Without a write: 0 where it tells of none.
int told_error(const std::string& directory) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0) return is_trouble(errno) ? errno : 0;
  if ((disk.f_flag & ST_RDONLY) != 0) return EROFS;
  const bool no_blocks = disk.f_blocks > 0 && disk.f_bavail == 0;
  const bool no_files = disk.f_files > 0 && disk.f_favail == 0;
  return no_blocks || no_files ? ENOSPC : 0;
}

int error_in(const std::string& directory) {
  const int told = told_error(directory);
  return told != 0 ? told : write_error(directory);
}

}  // namespace

bool DiskProbe::is_in_trouble(const std::string& directory) {
  if (directory.empty()) return false;
  const bool was_well = directory == well_ && steady_now_s() - well_s_ < kWell_s;
  if ((was_well ? told_error(directory) : error_in(directory)) != 0) {
    suspect_ = directory;
    return true;
  }
  if (!was_well) {
    well_ = directory;
    well_s_ = steady_now_s();
  }
  return false;
}

void DiskProbe::check() {
  if (suspect_.empty()) return;
  if (const int error = error_in(suspect_); error != 0)
    throw system_error(error, "cannot write in " + suspect_);
  suspect_.clear();
}

bool says_disk_trouble(std::string_view output) {
  return std::any_of(kTroubles.begin(), kTroubles.end(), [output](int error) {
    return output.find(std::string(": ") + std::strerror(error)) != std::string_view::npos;
  });
}

}  // namespace wflow::workers
