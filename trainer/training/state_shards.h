// SPDX-License-Identifier: Apache-2.0
// `shard`: each rank keeps a share of the training's state (Rajbhandari et al. 2020, "ZeRO", section 5):
//   optimizer  of the optimizer's arrays and of the average of the weights;
//   gradients  also of the gradients, once they are summed over the ranks;
//   weights    also of the weights: a layer's are collected while it is computed.
// A rank updates its share. Norms of arrays are sums over fixed blocks of values, whoever has them: the bits
// are those of a training without shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/model/flat_state.h"
#include "trainer/model/layout.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

// The values at these positions of an array, of which `all` has those from `begin` on.
template <class Value>
std::span<Value> values_in(std::span<Value> all, const Range& range, std::int64_t begin = 0) {
  return all.subspan(static_cast<std::size_t>(range.begin - begin), static_cast<std::size_t>(range.count()));
}

// Values of an array over whose squares a sum is made at a time: at least 4,096, and at most 1,024 blocks an
// array.
std::int64_t block_of(std::int64_t count);

// The ranks' shares: of every array a part, in whole blocks.
class StateShards {
 public:
  // One rank has all.
  explicit StateShards(const FlatLayout& layout) : StateShards(layout, 1, 0) {}
  StateShards(const FlatLayout& layout, int ranks, int rank);

  bool active() const { return ranks_ > 1; }
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  // Where an array begins in the flat array, and its number of values.
  std::int64_t begin_of(std::size_t array) const { return arrays_[array].begin; }
  std::int64_t count_of(std::size_t array) const { return arrays_[array].count; }
  // Positions in the flat array of a rank's part of an array; `array`: its number in the layout.
  Range of(std::size_t array, int rank) const;
  Range own(std::size_t array) const { return of(array, rank_); }

  // Arrays of a share's length have the rank's parts one after the other: those of one rank are laid out as
  // the flat array, if the layout has all of its arrays.
  std::int64_t own_size() const { return own_size_; }
  template <class Value>
  std::span<Value> kept(std::size_t array, std::span<Value> share) const {
    const std::int64_t begin = arrays_[array].kept_at;
    return values_in(share, {begin, begin + own(array).count()});
  }

  // The owners of the values from position `begin` to before `end` of the flat array, at positions that count
  // from `begin`. Gaps between arrays belong to all.
  OwnedParts owners(std::int64_t begin, std::int64_t end) const;

 private:
  struct Array {
    std::int64_t begin = 0;  // in the flat array
    std::int64_t count = 0;
    std::int64_t kept_at = 0;  // in this rank's share
  };
  int ranks_;
  int rank_;
  std::vector<Array> arrays_;
  std::int64_t own_size_ = 0;
};

}  // namespace wflow::trainer
