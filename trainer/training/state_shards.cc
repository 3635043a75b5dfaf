// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/state_shards.h"

#include <algorithm>

#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kLeastBlock = 4096;
constexpr std::int64_t kMostBlocks = 1024;
constexpr std::uint64_t kTurns = 11;  // seed

// A part begins on a cache line.
std::int64_t whole_lines(std::int64_t count) {
  constexpr std::int64_t kLine = 16;
  return (count + kLine - 1) / kLine * kLine;
}

}  // namespace

std::int64_t block_of(std::int64_t count) {
  const std::int64_t least = (count + kMostBlocks - 1) / kMostBlocks;
  return std::max<std::int64_t>(1, (least + kLeastBlock - 1) / kLeastBlock) * kLeastBlock;
}

StateShards::StateShards(const FlatLayout& layout, int ranks, int rank) : ranks_(ranks), rank_(rank) {
  for (const FlatEntry& entry : layout.entries) {
    arrays_.push_back({entry.offset, entry.count, own_size_});
    own_size_ += whole_lines(own(arrays_.size() - 1).count());
  }
}

Range StateShards::of(std::size_t array, int rank) const {
  const Array& what = arrays_[array];
  const std::int64_t block = block_of(what.count);
  const std::int64_t blocks = (what.count + block - 1) / block;
  // Arrays of few blocks go to any ranks, always the same ones: layouts of some of the arrays have other
  // numbers for them.
  const auto turn = static_cast<std::int64_t>(hash64(kTurns, static_cast<std::uint64_t>(what.begin)) %
                                              static_cast<std::uint64_t>(ranks_));
  const std::int64_t place = blocks < ranks_ ? (rank + turn) % ranks_ : rank;
  const auto cut = [&](std::int64_t at) { return std::min(what.count, blocks * at / ranks_ * block); };
  return {what.begin + cut(place), what.begin + cut(place + 1)};
}

OwnedParts StateShards::owners(std::int64_t begin, std::int64_t end) const {
  OwnedParts parts;
  const auto ends_before = [](const Array& array, std::int64_t at) {
    return array.begin + array.count <= at;
  };
  for (auto array = std::lower_bound(arrays_.begin(), arrays_.end(), begin, ends_before);
       array != arrays_.end() && array->begin < end; ++array) {
    const auto first = parts.size();
    for (int rank = 0; rank < ranks_; ++rank) {
      const Range part =
          intersection(of(static_cast<std::size_t>(array - arrays_.begin()), rank), {begin, end});
      if (part.empty()) continue;
      parts.push_back(
          {rank, static_cast<std::size_t>(part.begin - begin), static_cast<std::size_t>(part.end - begin)});
    }
    std::sort(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end(),
              [](const OwnedPart& a, const OwnedPart& b) { return a.begin < b.begin; });
  }
  return parts;
}

}  // namespace wflow::trainer
