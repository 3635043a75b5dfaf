// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/ordered_parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>

namespace wflow::converters {
namespace {

TEST(OrderedParallel, TakesAllInOrderAndHoldsFew) {
  for (const std::size_t threads : {1U, 3U, 8U}) {
    std::atomic<std::size_t> held{0};
    std::atomic<std::size_t> most{0};
    std::size_t next = 0;
    ordered_parallel<std::unique_ptr<std::size_t>>(
        500, threads,
        [&](std::size_t worker, std::size_t i) {
          EXPECT_LT(worker, threads);
          const std::size_t now = ++held;
          for (std::size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
          }
          return std::make_unique<std::size_t>(i);
        },
        [&](std::size_t i, std::unique_ptr<std::size_t> item) {
          EXPECT_EQ(i, next++);
          EXPECT_EQ(*item, i);
          --held;
        });
    EXPECT_EQ(next, 500U);
    EXPECT_LE(most, 2 * threads);
  }
}

TEST(OrderedParallel, AnExceptionOfEitherSideEndsIt) {
  const auto make = [](std::size_t, std::size_t i) { return i == 40 ? throw std::runtime_error("make") : i; };
  EXPECT_THROW(ordered_parallel<std::size_t>(100, 4, make, [](std::size_t, std::size_t) {}),
               std::runtime_error);
  const auto take = [](std::size_t i, std::size_t) {
    if (i == 7) throw std::logic_error("take");
  };
  EXPECT_THROW(ordered_parallel<std::size_t>(
                   100, 4, [](std::size_t, std::size_t i) { return i; }, take),
               std::logic_error);
  ordered_parallel<std::size_t>(0, 2, make, take);
}

}  // namespace
}  // namespace wflow::converters
