// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/stage_space.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "base/process.h"
#include "base/resources.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// Share of the free memory; the rest is for the network, batches and the cache.
constexpr double kMostOfMemory = 0.75;

}  // namespace

fs::path default_stage_folder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/tmp";
}

StageSpace::StageSpace(const TrainConfig& config)
    : stage_(config.stage),
      folder_(config.stage_folder.empty() ? default_stage_folder() : fs::path(config.stage_folder)) {}

FileDescriptor StageSpace::file(std::uint64_t bytes, const std::string& what) const {
  FileDescriptor fd;
  if (stage_ == Stage::memory) {
    fd = FileDescriptor(::memfd_create("wflow-stage", MFD_CLOEXEC));
    if (!fd) throw system_error(errno, "cannot make a file in memory for the staged samples");
  } else {
    fd = FileDescriptor(::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!fd) {
      // The file system has no such files: the name exists for a moment.
      std::string name = (folder_ / "wflow-stage-XXXXXX").string();
      fd = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
      if (!fd)
        throw system_error(errno, fmt::format("stage: local: cannot make a file in {}", folder_.string()));
      ::unlink(name.c_str());
    }
  }
  // Reserved space can't run out in the middle of a copy.
  const int refused = bytes == 0 ? 0 : ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (refused != 0)
    throw system_error(refused, fmt::format("stage: {}: no space for {}", name_of(stage_), what));
  return fd;
}

std::uint64_t StageSpace::free_bytes() const {
  if (stage_ == Stage::memory)
    return static_cast<std::uint64_t>(kMostOfMemory * static_cast<double>(free_memory()));
  struct statvfs system {};
  if (::statvfs(folder_.c_str(), &system) != 0)
    throw system_error(errno, fmt::format("stage: local: cannot use {}", folder_.string()));
  return system.f_bavail * system.f_frsize;
}

void StageSpace::check(Communicator& communicator, std::uint64_t own_bytes, const std::string& what,
                       const Advice& advice) const {
  std::uint64_t own_free = 0;
  agree(communicator, failure_of([&] { own_free = free_bytes(); }));
  const std::vector<std::string> hosts = communicator.all_gather(host_name());
  const std::vector<std::uint64_t> all =
      gather_values(communicator, std::vector<std::uint64_t>{own_bytes, own_free});
  // Bytes for all ranks of a host, whatever groups it is cut into.
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> on_hosts;  // needed and free
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::uint64_t free = all[2 * rank + 1];
    auto& [needed_there, free_there] = on_hosts.try_emplace(hosts[rank], 0, free).first->second;
    needed_there += all[2 * rank];
    free_there = std::min(free_there, free);
  }
  for (const auto& [host, bytes_there] : on_hosts) {
    const auto [needed, free] = bytes_there;
    if (needed <= free) continue;
    const std::string begin = fmt::format("stage: {}: {} would hold {} of {}, ", name_of(stage_), host,
                                          text::format_bytes(needed), what);
    throw CommonError(ExitCode::system, stage_ == Stage::memory
                                            ? fmt::format("{}and staging may take {} of its memory; {}",
                                                          begin, text::format_bytes(free), advice.memory)
                                            : fmt::format("{}and {} has {} free; {}", begin, folder_.string(),
                                                          text::format_bytes(free), advice.files));
  }
}

void agree(Communicator& communicator, const std::string& failure) {
  for (const std::string& text : communicator.all_gather(failure))
    if (!text.empty()) throw CommonError(static_cast<ExitCode>(text.front()), text.substr(1));
}

}  // namespace wflow::trainer
