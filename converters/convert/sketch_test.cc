// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"

namespace wflow::converters {
namespace {

template <typename Value>
std::vector<std::uint8_t> raw_bytes(const std::vector<Value>& values) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(Value));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

BucketCounts count_buckets(DType dtype, std::span<const std::uint8_t> values) {
  Sketch sketch;
  sketch.add(dtype, values);
  return sketch.counts();
}

// Numbers of both signs over many octaves.
std::vector<double> numbers(std::size_t count) {
  std::vector<double> result(count);
  for (std::size_t i = 0; i < count; ++i)
    result[i] = std::exp(12 * unit_real(hash64(1, i)) - 4) * (hash64(2, i) % 3 == 0 ? -1 : 1);
  return result;
}

TEST(Sketch, QuantilesAreWithinTheirBound) {
  for (const std::size_t count : {100U, 2000U, 50000U}) {
    std::vector<double> values = numbers(count);
    Sketch sketch;
    sketch.add(count_buckets(DType::float64, raw_bytes(values)));
    EXPECT_EQ(sketch.total(), count);
    std::sort(values.begin(), values.end());
    for (const double level : {0.0, 0.01, 0.25, 0.5, 0.9, 1.0}) {
      const double exact =
          values[std::min(count - 1, static_cast<std::size_t>(level * static_cast<double>(count)))];
      const double found = sketch.quantile(level, values.front(), values.back());
      // The rank may fall between two values: both are correct.
      const auto at = static_cast<std::size_t>(level * static_cast<double>(count));
      const double neighbour = values[at == 0 ? 0 : std::min(count, at) - 1];
      EXPECT_TRUE(std::abs(found - exact) <= 0.017 * std::abs(exact) ||
                  std::abs(found - neighbour) <= 0.017 * std::abs(neighbour))
          << count << " " << level << " " << found << " " << exact;
    }
  }
}

TEST(Sketch, PiecesInAnyOrderAreTheWhole) {
  const std::vector<double> values = numbers(10000);
  Sketch whole;
  whole.add(count_buckets(DType::float64, raw_bytes(values)));
  Sketch pieces;
  for (const std::size_t first : {6000U, 0U, 9000U, 3000U}) {
    const std::size_t end = first == 9000 ? 10000 : first + 3000;
    pieces.add(count_buckets(
        DType::float64, raw_bytes(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(first),
                                                      values.begin() + static_cast<std::ptrdiff_t>(end)))));
  }
  EXPECT_EQ(pieces, whole);
}

TEST(Sketch, CountsAddUp) {
  Sketch total;
  total.add(BucketCounts{{1, 2}, {5, 1}});
  Sketch part;
  part.add(BucketCounts{{0, 1}, {5, 3}, {9, 1}});
  total.add(part);
  total.add(Sketch{});
  EXPECT_EQ(total.counts(), (BucketCounts{{0, 1}, {1, 2}, {5, 4}, {9, 1}}));
  EXPECT_EQ(total.total(), 8U);
  Sketch none;
  none.add(part);
  EXPECT_EQ(none, part);
}

TEST(Sketch, SmallWholeNumbersAndOddValues) {
  for (int k = 0; k < 127; ++k) EXPECT_LT(bucket_of(k), bucket_of(k + 1));
  EXPECT_EQ(bucket_of(-0.0), 0);
  EXPECT_EQ(bucket_of(-3), -bucket_of(3));
  const std::vector<double> odd = {1e300, -1e300, std::numeric_limits<double>::infinity(), std::nan(""), 0};
  const BucketCounts counts = count_buckets(DType::float64, raw_bytes(odd));
  ASSERT_EQ(counts.size(), 3U);
  for (const auto& [bucket, count] : counts) {
    EXPECT_TRUE(is_bucket(bucket));
    EXPECT_EQ(count, 1U);
  }
  for (const double value : {1e-30, 0.7, 3.0, 1e20}) {
    for (const double sign : {1.0, -1.0}) {
      const auto [from, to] = bucket_edges(bucket_of(sign * value));
      EXPECT_LE(from, sign * value + 1e-6 * value);
      EXPECT_GE(to, sign * value - 1e-6 * value);
    }
  }
  EXPECT_EQ(count_buckets(DType::uint8, raw_bytes(std::vector<std::uint8_t>(5000, 7))).front().second, 5000U);
}

// Before the first finite value, and after it.
TEST(Sketch, ValuesThatAreAllNotFiniteCountNowhere) {
  const std::vector<double> none(3, std::nan(""));
  const std::vector<double> numbers = {1, -2};
  const std::vector<double> mixed = {std::nan(""), 1, -std::numeric_limits<double>::infinity(), -2};
  Sketch sketch;
  sketch.add(DType::float64, raw_bytes(none));
  EXPECT_TRUE(sketch.counts().empty());
  sketch.add(DType::float64, raw_bytes(numbers));
  sketch.add(DType::float64, raw_bytes(none));
  EXPECT_EQ(sketch.counts(), count_buckets(DType::float64, raw_bytes(numbers)));
  EXPECT_EQ(count_buckets(DType::float64, raw_bytes(mixed)), sketch.counts());
}

// The bins end where buckets do: every bin has the count that the values themselves give.
TEST(Histogram, CountsAreThoseOfTheValues) {
  const auto check = [](const std::vector<double>& values, double least, double most) {
    Sketch sketch;
    sketch.add(count_buckets(DType::float64, raw_bytes(values)));
    const Histogram histogram = histogram_of(sketch, least, most, 40);
    ASSERT_FALSE(histogram.counts.empty());
    EXPECT_LE(histogram.counts.size(), 40U);
    EXPECT_LE(histogram.low, least);
    EXPECT_GE(histogram.low + histogram.width * static_cast<double>(histogram.counts.size()), most);
    Histogram exact{.low = histogram.low, .width = histogram.width, .counts = {}, .below = 0, .above = 0};
    exact.counts.resize(histogram.counts.size());
    for (const double value : values) {
      const double at = std::floor((value - exact.low) / exact.width);
      if (at < 0) {
        ++exact.below;
      } else if (at < static_cast<double>(exact.counts.size())) {
        ++exact.counts[static_cast<std::size_t>(at)];
      } else {
        ++exact.above;
      }
    }
    EXPECT_EQ(histogram.counts, exact.counts) << least << " to " << most;
    EXPECT_EQ(histogram.below, exact.below);
    EXPECT_EQ(histogram.above, exact.above);
  };
  std::vector<double> near_hundred(5000);
  for (std::size_t i = 0; i < near_hundred.size(); ++i) near_hundred[i] = 100 + 2 * unit_real(hash64(3, i));
  check(near_hundred, 100.01, 101.99);
  check(numbers(20000), -900, 1500);
  check(numbers(20000), 0.02, 7);
  check({0, 0, 1, 1, 1}, 0, 1);
}

TEST(Histogram, IsNoFinerThanTheSketch) {
  Sketch sketch;
  sketch.add(count_buckets(DType::float64, raw_bytes(std::vector<double>{100, 100.3, 101.5, 102})));
  // From 64 to 128 a bucket has the width 1.
  EXPECT_EQ(histogram_of(sketch, 100, 102, 40).counts, (std::vector<std::uint64_t>{2, 1, 1}));
  EXPECT_TRUE(histogram_of(sketch, 100, 100, 40).counts.empty());
}

}  // namespace
}  // namespace wflow::converters
