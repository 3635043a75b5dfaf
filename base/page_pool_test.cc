// SPDX-License-Identifier: Apache-2.0
#include "base/page_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>

namespace wflow {
namespace {

// A sanitizer takes memory of its own.
#if defined(WFLOW_ADDRESS_SANITIZER) || defined(WFLOW_THREAD_SANITIZER)
constexpr bool kCountsMemory = false;
#else
constexpr bool kCountsMemory = true;
#endif

// Private memory, with any alignment but that of pages.
class Memory {
 public:
  explicit Memory(std::size_t floats)
      : bytes_(floats * sizeof(float) + 4096),
        begin_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        values_(static_cast<float*>(begin_) + 17, floats) {}
  ~Memory() { ::munmap(begin_, bytes_); }
  std::span<float> values() { return values_; }

 private:
  std::size_t bytes_;
  void* begin_;
  std::span<float> values_;
};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

bool all_are(std::span<const float> values, float value) {
  return std::ranges::all_of(values, [value](float v) { return v == value; });
}

TEST(PagePool, LendsPagesAgainThatCameBack) {
  constexpr std::size_t kFloats = (std::size_t{8} << 20) + 1234;
  Memory first(kFloats);
  Memory second(kFloats);
  PagePool pool;
  pool.lend(first.values());  // nothing is there yet
  const std::size_t before = resident_bytes();
  for (int turn = 0; turn < 5; ++turn) {
    for (Memory* memory : {&first, &second}) {
      pool.lend(memory->values());
      std::ranges::fill(memory->values(), 3.0F);
      EXPECT_TRUE(all_are(memory->values(), 3.0F));
      pool.take_back(memory->values());
      EXPECT_TRUE(all_are(memory->values().subspan(2048, kFloats - 4096), 0.0F));
      clear_place(memory->values());
      EXPECT_TRUE(all_are(memory->values(), 0.0F));
    }
  }
  // One place is in memory, not two.
  if (kCountsMemory) {
    EXPECT_LT(resident_bytes() - before, kFloats * sizeof(float) * 5 / 4);
  }
}

TEST(PagePool, LeavesNeighboursAlone) {
  constexpr std::size_t kFloats = std::size_t{4} << 20;
  Memory memory(kFloats);
  std::ranges::fill(memory.values(), 1.0F);
  PagePool pool;
  const std::span<float> middle = memory.values().subspan(100'003, 2'000'001);
  pool.take_back(middle);
  pool.take_back(memory.values().subspan(20, 1000));  // too small: keeps its values
  pool.lend(middle);
  std::ranges::fill(middle, 2.0F);
  EXPECT_TRUE(all_are(memory.values().first(100'003), 1.0F));
  EXPECT_TRUE(all_are(middle, 2.0F));
  EXPECT_TRUE(all_are(memory.values().subspan(100'003 + middle.size()), 1.0F));
}

TEST(PagePool, SeveralThreadsMayUseIt) {
  constexpr std::size_t kFloats = std::size_t{1} << 20;
  PagePool pool;
  const auto work = [&pool](float value) {
    Memory memory(kFloats);
    for (int turn = 0; turn < 30; ++turn) {
      pool.lend(memory.values());
      std::ranges::fill(memory.values(), value);
      ASSERT_TRUE(all_are(memory.values(), value));
      pool.take_back(memory.values());
    }
  };
  std::thread other([&] { work(1.0F); });
  work(2.0F);
  other.join();
}

}  // namespace
}  // namespace wflow
