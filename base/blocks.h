// SPDX-License-Identifier: Apache-2.0
// Items 0 to count - 1 in blocks of equal size. A new block also begins at each of `starts`: the places where
// the samples of a campaign have grown, so that no block of the earlier samples ever changes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace wflow {

struct BlockRange {
  std::uint64_t first = 0;
  std::uint64_t end = 0;  // behind the last item
  std::uint64_t size() const { return end - first; }
};

// `size` is at least 1. `starts` are ascending and greater than 0; the caller keeps them. Starts at or behind
// the count have no effect.
class Blocks {
 public:
  Blocks(std::uint64_t size, std::span<const std::uint64_t> starts) : size_(size), starts_(starts) {}

  std::uint64_t block_of(std::uint64_t item) const {
    const Part part = part_with(item);
    return part.block + (item - part.first) / size_;
  }

  // The items of a block of `count` items; empty for a block that does not exist.
  BlockRange items(std::uint64_t block, std::uint64_t count) const {
    Part part;
    std::uint64_t end = count;
    for (const std::uint64_t start : starts_) {
      if (start >= count) break;
      const std::uint64_t behind = part.block + blocks_in(start - part.first);
      if (block < behind) {
        end = start;
        break;
      }
      part = {start, behind};
    }
    const std::uint64_t within = block - part.block;
    if (within >= blocks_in(end - part.first)) return {count, count};
    const std::uint64_t first = part.first + within * size_;
    return {first, end - first > size_ ? first + size_ : end};
  }

  // The block that holds `item`.
  BlockRange around(std::uint64_t item, std::uint64_t count) const {
    const Part part = part_with(item);
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), item);
    const std::uint64_t end = next == starts_.end() ? count : std::min(*next, count);
    const std::uint64_t first = item - (item - part.first) % size_;
    return {first, end - first > size_ ? first + size_ : end};
  }

  std::uint64_t count(std::uint64_t items) const { return items == 0 ? 0 : block_of(items - 1) + 1; }

 private:
  struct Part {
    std::uint64_t first = 0;  // item
    std::uint64_t block = 0;  // its block
  };
  std::uint64_t blocks_in(std::uint64_t items) const { return items / size_ + (items % size_ == 0 ? 0 : 1); }
  Part part_with(std::uint64_t item) const {
    Part part;
    for (const std::uint64_t start : starts_) {
      if (start > item) break;
      part = {start, part.block + blocks_in(start - part.first)};
    }
    return part;
  }

  std::uint64_t size_;
  std::span<const std::uint64_t> starts_;
};

}  // namespace wflow
