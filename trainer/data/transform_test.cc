// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/transform.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace wflow::trainer {
namespace {

TEST(Noise, IsNormal) {
  constexpr double kDeviation = 0.25;
  std::vector<float> values(1'000'001, 3.0F);
  add_noise(values, noise_key(1, 2, 3), kDeviation);
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  double neighbours = 0;
  double beyond = 0;  // 3 deviations
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double z = (static_cast<double>(values[i]) - 3) / kDeviation;
    ASSERT_TRUE(std::isfinite(z));
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    beyond += std::abs(z) > 3 ? 1 : 0;
    if (i > 0) neighbours += z * (static_cast<double>(values[i - 1]) - 3) / kDeviation;
  }
  EXPECT_NEAR(sum / count, 0, 0.005);
  EXPECT_NEAR(squares / count, 1, 0.005);
  EXPECT_NEAR(fourth / count, 3, 0.03);
  EXPECT_NEAR(neighbours / count, 0, 0.005);
  EXPECT_NEAR(beyond / count, 0.0027, 0.0003);
}

TEST(Noise, IsAFunctionOfSeedEpochAndSample) {
  const auto noise = [](std::uint64_t seed, std::uint64_t epoch, std::int64_t sample) {
    std::vector<float> values(7, 0.0F);
    add_noise(values, noise_key(seed, epoch, sample), 1);
    return values;
  };
  EXPECT_EQ(noise(1, 2, 3), noise(1, 2, 3));
  EXPECT_NE(noise(1, 2, 3), noise(2, 2, 3));
  EXPECT_NE(noise(1, 2, 3), noise(1, 3, 3));
  EXPECT_NE(noise(1, 2, 3), noise(1, 2, 4));
}

}  // namespace
}  // namespace wflow::trainer
