// SPDX-License-Identifier: Apache-2.0
#include "converters/input/read_ahead.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kThreads =
    4;  // each waits only for inodes: the kernel reads the requested data on its own

// The number of bytes that were requested.
std::uint64_t ask_for(const fs::path& path) {
  // Opening a pipe would wait for its writer.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  const auto bytes = std::min(static_cast<std::uint64_t>(status.st_size), ReadAhead::kMostOfFile);
  ::posix_fadvise(fd.get(), 0, static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  return bytes;
}

}  // namespace

ReadAhead::ReadAhead(std::size_t items, std::function<std::vector<fs::path>(std::size_t)> files)
    : items_(items), files_(std::move(files)) {
  for (std::size_t k = 0; k < std::min(kThreads, items); ++k) threads_.emplace_back([this] { work(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void ReadAhead::reached(std::size_t item) {
  {
    const std::lock_guard lock(mutex_);
    if (item <= reached_) return;
    for (; reached_ < std::min(item, next_); ++reached_)
      bytes_ -= std::exchange(sizes_[reached_ % kWindow], 0);
    reached_ = item;
    next_ = std::max(next_, item);
    if (filling_ || !is_half_empty()) return;  // waking threads for each item costs more than it saves
    filling_ = true;
  }
  changed_.notify_all();
}

void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    filling_ = filling_ && !is_full();
    changed_.wait(lock, [&] { return stopping_ || next_ >= items_ || filling_; });
    if (stopping_ || next_ >= items_) return;
    const std::size_t item = next_++;
    lock.unlock();
    std::uint64_t bytes = 0;
    try {
      for (const fs::path& file : files_(item)) bytes += ask_for(file);
    } catch (const std::exception&) {  // the reader of the item gets the same error
    }
    lock.lock();
    if (item < reached_) continue;
    sizes_[item % kWindow] = bytes;
    bytes_ += bytes;
  }
}

}  // namespace wflow::converters
