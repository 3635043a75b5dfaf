// SPDX-License-Identifier: Apache-2.0
// Gradients and batch statistics of the earlier passes of a step (`accumulate`), until they are added to the
// last one's while that is exchanged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace wflow::trainer {

class Accumulated {
 public:
  void add(std::span<const float> exchange) {
    sums_.resize(exchange.size(), 0.0F);
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += exchange[i];
    end_ = sums_.size();
  }
  // Adds what lies from place `from` on and has not been added yet. Does nothing where nothing was
  // accumulated.
  void add_to(std::span<float> exchange, std::int64_t from) {
    for (std::size_t i = static_cast<std::size_t>(from); i < end_; ++i) {
      exchange[i] += sums_[i];
      sums_[i] = 0;
    }
    if (end_ > 0) end_ = static_cast<std::size_t>(from);
  }

 private:
  std::vector<float> sums_;
  std::size_t end_ = 0;  // places from here on have been added
};

}  // namespace wflow::trainer
