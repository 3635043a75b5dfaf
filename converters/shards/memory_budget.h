// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace wflow::converters {

// Bytes that caches may still take, shared by those of several splits and threads.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t bytes = 0) : left_(bytes) {}
  // False where there are not so many left; nothing is taken then.
  bool take(std::int64_t bytes) {
    std::int64_t left = left_.load(std::memory_order_relaxed);
    while (left >= bytes) {
      if (left_.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void give_back(std::int64_t bytes) { left_.fetch_add(bytes, std::memory_order_relaxed); }
  bool holds(std::int64_t bytes) const { return left_.load(std::memory_order_relaxed) >= bytes; }

 private:
  std::atomic<std::int64_t> left_;
};

}  // namespace wflow::converters
