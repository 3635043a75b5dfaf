// SPDX-License-Identifier: Apache-2.0
// Memory that several places of large arrays use in turn. Memory that the kernel takes back must be cleared
// when it is given out again, at a fifth of the speed of a copy; here its pages move from one place to
// another instead.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

namespace wflow {

// Gives the pages that a place fills back to the kernel: they read as zeros until they are written. Values on
// other pages stay.
void give_back_pages(std::span<float> place);
// Makes a place read as zeros, and gives back the pages that it fills.
void clear_place(std::span<float> place);

// All places must be private memory that is not of a file, such as that of a FloatBuffer. Several threads may
// call the functions for different places.
class PagePool {
 public:
  PagePool() = default;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool();

  // Before a place is written: it gets pages of the pool, with any content, as far as there are some.
  void lend(std::span<float> place);
  // The pages go to the pool, and the place reads as zeros until it is written. A place of less than 64 KiB
  // keeps them, and its values.
  void take_back(std::span<float> place);

 private:
  // Moved at a time: it may lie anywhere, so that at most two units of a place stay out.
  static constexpr std::size_t kUnit = std::size_t{1} << 19;

  std::byte* empty_slot();

  std::mutex mutex_;
  std::vector<std::byte*> units_;  // with pages
  std::vector<std::byte*> slots_;  // addresses without
  std::vector<std::byte*> reserved_;
};

}  // namespace wflow
