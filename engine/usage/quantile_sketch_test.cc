// SPDX-License-Identifier: Apache-2.0
#include "engine/usage/quantile_sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace wflow::engine {
namespace {

// Over nine orders of magnitude.
std::vector<double> numbers(std::uint64_t seed, std::size_t count) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(std::pow(10, 9 * unit_real(hash64(seed, i)) - 3));
  return values;
}

QuantileSketch sketch_of(const std::vector<double>& values) {
  QuantileSketch sketch;
  for (const double value : values) sketch.add(value);
  return sketch;
}

TEST(QuantileSketch, IsWithinItsRelativeError) {
  std::vector<double> values = numbers(1, 20'000);
  const QuantileSketch sketch = sketch_of(values);
  std::sort(values.begin(), values.end());
  for (const double fraction : {0.0, 0.01, 0.5, 0.95, 0.999, 1.0}) {
    const double exact = values[static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1))];
    EXPECT_NEAR(sketch.quantile(fraction), exact, exact * QuantileSketch::kRelativeError * 1.001) << fraction;
  }
  EXPECT_EQ(sketch.most(), values.back());
}

TEST(QuantileSketch, MergesToWhatOneWouldBe) {
  const std::vector<double> a = numbers(1, 3000);
  const std::vector<double> b = numbers(2, 500);
  QuantileSketch merged = sketch_of(a);
  merged.merge(sketch_of(b));
  std::vector<double> both = a;
  both.insert(both.end(), b.begin(), b.end());
  const QuantileSketch one = sketch_of(both);
  EXPECT_EQ(merged.buckets(), one.buckets());
  EXPECT_EQ(merged.count(), one.count());
  EXPECT_NEAR(merged.sum(), one.sum(), 1e-9 * one.sum());
}

TEST(QuantileSketch, TakesAnything) {
  QuantileSketch sketch;
  EXPECT_EQ(sketch.quantile(0.5), 0);
  for (const double value : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    sketch.add(value);
  EXPECT_EQ(sketch.quantile(1), 0);
  sketch.add(1e300);
  EXPECT_NEAR(sketch.quantile(1), 1e300, 1e298);
  EXPECT_EQ(sketch.count(), 5U);
}

TEST(QuantileSketch, ReadsWhatItWrote) {
  QuantileSketch sketch = sketch_of(numbers(3, 1000));
  sketch.add(0);
  std::string bytes;
  sketch.write(bytes);
  bytes += "rest";
  std::string_view view = bytes;
  QuantileSketch read;
  ASSERT_TRUE(read.read(view));
  EXPECT_EQ(view, "rest");
  EXPECT_EQ(read, sketch);
  for (std::size_t size = 0; size + 4 < bytes.size(); ++size) {
    std::string_view cut(bytes.data(), size);
    EXPECT_FALSE(read.read(cut)) << size;
  }
}

}  // namespace
}  // namespace wflow::engine
