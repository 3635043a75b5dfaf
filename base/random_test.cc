// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gtest/gtest.h>

#include <vector>

namespace wflow {
namespace {

TEST(Permutation, IsABijectionForEverySmallCount) {
  for (std::uint64_t count = 1; count < 200; ++count) {
    const Permutation permutation(count, count * 7);
    std::vector<bool> seen(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t image = permutation(i);
      ASSERT_LT(image, count);
      ASSERT_FALSE(seen[image]);
      seen[image] = true;
    }
  }
}

TEST(Permutation, DependsOnTheKeyOnly) {
  const Permutation a(1000, 1);
  const Permutation b(1000, 2);
  int equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), Permutation(1000, 1)(i));
    equal += a(i) == b(i);
  }
  EXPECT_LT(equal, 20);
}

TEST(Hash64, UnitRealsAreUniform) {
  double sum = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = unit_real(hash64(5, i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.01);
}

}  // namespace
}  // namespace wflow
