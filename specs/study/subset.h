// SPDX-License-Identifier: Apache-2.0
// Some of the numbers from 0 to size - 1: a bit each, and a count for every 64 of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

namespace wflow::specs {

class Subset {
 public:
  // Those for which `keep` is true.
  Subset(std::uint32_t size, const std::function<bool(std::uint32_t)>& keep)
      : words_((size + 63) / 64), before_(words_.size()) {
    for (std::uint32_t i = 0; i < size; ++i) {
      if (i % 64 == 0) before_[i / 64] = count_;
      if (!keep(i)) continue;
      words_[i / 64] |= std::uint64_t{1} << (i % 64);
      ++count_;
    }
  }

  std::uint32_t count() const { return count_; }
  bool contains(std::uint32_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }

  // How many smaller ones there are.
  std::uint32_t position(std::uint32_t i) const {
    const std::uint64_t smaller = words_[i / 64] & ((std::uint64_t{1} << (i % 64)) - 1);
    return before_[i / 64] + static_cast<std::uint32_t>(std::popcount(smaller));
  }

  // The one at `position`, which is below count().
  std::uint32_t at(std::uint32_t position) const {
    const auto after = std::upper_bound(before_.begin(), before_.end(), position);
    const auto word = static_cast<std::uint32_t>(after - before_.begin()) - 1;
    std::uint64_t bits = words_[word];
    for (std::uint32_t left = position - before_[word]; left > 0; --left) bits &= bits - 1;
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }

 private:
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> before_;  // members below each word's first number
  std::uint32_t count_ = 0;
};

}  // namespace wflow::specs
