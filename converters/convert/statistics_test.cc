// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/statistics.h"

#include <cmath>
#include <limits>

#include "converters/convert/test_support.h"
#include "converters/input/array.h"

namespace wflow::converters {
namespace {

template <typename Value>
std::vector<std::uint8_t> raw(const std::vector<Value>& values) {
  const std::string bytes = bytes_of(values);
  return {bytes.begin(), bytes.end()};
}

TEST(Statistics, AreThoseOfTheValues) {
  const ChannelStatistics s =
      summary(moments_of(DType::float32, raw(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})));
  EXPECT_DOUBLE_EQ(s.mean, 5.5);
  EXPECT_DOUBLE_EQ(s.std, std::sqrt(8.25));
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 10);
  EXPECT_EQ(summary(moments_of(DType::uint8, raw(std::vector<std::uint8_t>{7, 7, 7}))).std, 0);
  EXPECT_EQ(moments_of(DType::int16, {}).count, 0U);
}

TEST(Statistics, PiecesMergeToTheWhole) {
  std::vector<double> values(10000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1e6 + unit_real(hash64(1, i));
  const Moments whole = moments_of(DType::float64, raw(values));
  Moments merged;
  for (std::size_t start = 0; start < values.size(); start += 777) {
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), start + 777));
    merged.merge(moments_of(
        DType::float64, raw(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(start), end))));
  }
  EXPECT_EQ(merged.count, whole.count);
  EXPECT_NEAR(merged.mean, whole.mean, 1e-9);
  EXPECT_NEAR(merged.m2 / whole.m2, 1, 1e-9);  // a naive sum of squares would lose all digits here
  EXPECT_EQ(merged.max, whole.max);
}

TEST(Statistics, NonFiniteValuesAreFoundAndLeftOut) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(all_finite(DType::float32, raw(std::vector<float>{1, nan})));
  EXPECT_FALSE(all_finite(DType::float32, raw(std::vector<float>{-infinity, 1})));
  EXPECT_FALSE(all_finite(DType::float64, raw(std::vector<double>{1, -HUGE_VAL})));
  EXPECT_TRUE(all_finite(DType::float64, raw(std::vector<double>{1e308, -1e308, 0})));
  EXPECT_TRUE(all_finite(DType::uint32, raw(std::vector<std::uint32_t>{0x7f800000})));
  const Moments moments = moments_of(DType::float32, raw(std::vector<float>{1, nan, 3, infinity}));
  EXPECT_EQ(moments.count, 2U);
  EXPECT_EQ(moments.mean, 2);
}

TEST(Array, ConvertsValues) {
  Array array{DType::float64, {3}, raw(std::vector<double>{1.5, -2, 1e300})};
  convert_values(array, DType::float32);
  EXPECT_FALSE(all_finite(array.dtype, array.bytes));  // 1e300 is no float32
  Array whole{DType::uint16, {2}, raw(std::vector<std::uint16_t>{65535, 0})};
  convert_values(whole, DType::float32);
  EXPECT_EQ(std::string(whole.bytes.begin(), whole.bytes.end()), bytes_of(std::vector<float>{65535, 0}));
}

}  // namespace
}  // namespace wflow::converters
