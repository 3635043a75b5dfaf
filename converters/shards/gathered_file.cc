// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/gathered_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace wflow::converters {

namespace {

bool write_whole(int fd, std::uint64_t offset, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  return true;
}

bool read_with_zeros(int fd, std::uint64_t offset, std::span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    if (done == 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
  return true;
}

std::size_t before(std::uint64_t offset, std::uint64_t end, std::size_t bytes) {
  return offset < end ? static_cast<std::size_t>(std::min<std::uint64_t>(end - offset, bytes)) : 0;
}

}  // namespace

GatheredFile::GatheredFile(FileDescriptor fd) : fd_(std::move(fd)) {
  held_.reserve(kHeld);
}

bool GatheredFile::write(std::uint64_t offset, std::span<const std::uint8_t> bytes) {
  if (!fill_to(offset)) return false;
  if (const std::size_t count = before(offset, begin_, bytes.size())) {
    if (!write_whole(fd_.get(), offset, bytes.first(count))) return false;
    bytes = bytes.subspan(count);
    offset += count;
  }
  if (const std::size_t count = before(offset, held_end(), bytes.size())) {
    std::copy_n(bytes.begin(), count, held_.begin() + static_cast<std::ptrdiff_t>(offset - begin_));
    handed_over_ = false;
    bytes = bytes.subspan(count);
  }
  return append(bytes);
}

bool GatheredFile::append(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    std::size_t count = std::min(bytes.size(), kHeld - held_.size());
    if (held_.empty() && bytes.size() >= kHeld) {
      count = bytes.size() / kHeld * kHeld;
      if (!write_whole(fd_.get(), begin_, bytes.first(count))) return false;
      begin_ += count;
    } else {
      held_.insert(held_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
      handed_over_ = false;
      if (held_.size() == kHeld && !hand_over()) return false;
    }
    bytes = bytes.subspan(count);
  }
  size_ = std::max(size_, held_end());
  return true;
}

// So that what follows stands at its end.
bool GatheredFile::fill_to(std::uint64_t offset) {
  if (offset <= held_end()) return true;
  if (offset - held_end() >= kHeld) {  // a hole
    if (!flush()) return false;
    held_.clear();
    begin_ = offset / kHeld * kHeld;
  }
  const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(offset - held_end()), 0);
  return append(zeros);
}

bool GatheredFile::hand_over() {
  if (!flush()) return false;
  begin_ = held_end();
  held_.clear();
  return true;
}

bool GatheredFile::flush() {
  if (!handed_over_ && !write_whole(fd_.get(), begin_, held_)) return false;
  handed_over_ = true;
  return true;
}

bool GatheredFile::read(std::uint64_t offset, std::span<std::uint8_t> bytes) const {
  if (const std::size_t count = before(offset, begin_, bytes.size())) {
    if (!read_with_zeros(fd_.get(), offset, bytes.first(count))) return false;
    bytes = bytes.subspan(count);
    offset += count;
  }
  const std::size_t count = before(offset, held_end(), bytes.size());
  if (count > 0)
    std::copy_n(held_.begin() + static_cast<std::ptrdiff_t>(offset - begin_), count, bytes.begin());
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(count), bytes.end(), std::uint8_t{0});
  return true;
}

bool GatheredFile::resize(std::uint64_t size) {
  if (!flush() || ::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return false;
  if (size < begin_) {
    held_.clear();
    begin_ = size;
  } else if (size < held_end()) {
    held_.resize(static_cast<std::size_t>(size - begin_));
  }
  size_ = size;
  return true;
}

}  // namespace wflow::converters
