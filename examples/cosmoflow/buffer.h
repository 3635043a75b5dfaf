// SPDX-License-Identifier: Apache-2.0
// Arrays of the hot loops: aligned for vector loads, and on huge pages where the system gives them, since
// gathering from a mesh of tens of megabytes on 4 KiB pages spends its time in TLB misses.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace cola {

template <typename T>
struct HugePageAllocator {
  using value_type = T;
  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(std::size_t count) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t bytes = count * sizeof(T);
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    // Advice only: without huge pages all is the same but slower.
    if (alignment == kHugePage) (void)madvise(memory, rounded, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }
  bool operator==(const HugePageAllocator&) const { return true; }
};

template <typename T>
using Buffer = std::vector<T, HugePageAllocator<T>>;

// Three components and one of padding: one vector register.
struct alignas(16) Float4 {
  float v[4] = {0, 0, 0, 0};
};

}  // namespace cola
