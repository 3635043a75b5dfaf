// SPDX-License-Identifier: Apache-2.0
#include "converters/values/value_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace wflow::converters {
namespace {

// Values of both signs, over many octaves, and at every place of a vector: zeros, some below -1, and some
// that are not finite.
template <typename Value>
std::vector<Value> odd_values(std::size_t count) {
  using Limits = std::numeric_limits<Value>;
  const std::vector<Value> special = {0,
                                      Value{-0.0},
                                      -1,
                                      Value{-1.5},
                                      Limits::infinity(),
                                      -Limits::infinity(),
                                      Limits::quiet_NaN(),
                                      Limits::max(),
                                      Limits::denorm_min(),
                                      Limits::min()};
  std::vector<Value> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double octave = 80 * unit_real(hash64(1, i)) - 40;
    values[i] = static_cast<Value>(hash64(2, i) % 4 == 0 ? -unit_real(hash64(3, i)) : std::exp2(octave));
    if (i >= count / 2 && hash64(4, i) % 16 == 0) values[i] = special[hash64(5, i) % special.size()];
  }
  return values;
}

template <typename Value>
bool same_bits(const std::vector<Value>& a, const std::vector<Value>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(Value)) != 0 && !(std::isnan(a[i]) && std::isnan(b[i])))
      return false;
  }
  return a.size() == b.size();
}

// The kernels of this processor, besides the plain ones.
std::vector<const ValueKernels*> fast_kernels() {
  std::vector<const ValueKernels*> all = {&value_kernels()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) all.push_back(&avx2_value_kernels);
#endif
  return all;
}

void expect_same_bits(const ValueKernels& fast) {
  const ValueKernels& plain = plain_value_kernels;
  for (const std::size_t count : {1U, 7U, 63U, 64U, 65U, 1000U}) {
    const std::vector<float> floats = odd_values<float>(count);
    const std::vector<double> doubles = odd_values<double>(count);
    const auto alike = [&](auto step) {
      auto a = floats;
      auto b = floats;
      auto c = doubles;
      auto d = doubles;
      step(fast, a, c);
      step(plain, b, d);
      EXPECT_TRUE(same_bits(a, b)) << count;
      EXPECT_TRUE(same_bits(c, d)) << count;
    };
    alike([&](const ValueKernels& k, auto& f, auto& d) {
      k.log1p_floats(f.data(), count);
      k.log1p_doubles(d.data(), count);
    });
    alike([&](const ValueKernels& k, auto& f, auto& d) {
      k.clip_floats(f.data(), count, -0.25, 10);
      k.clip_doubles(d.data(), count, -0.25, 10);
    });
    alike([&](const ValueKernels& k, auto& f, auto& d) {
      k.scale_floats(f.data(), count, 0.3, -0.1);
      k.scale_doubles(d.data(), count, 0.3, -0.1);
    });
    std::vector<double> finite(doubles.begin(),
                               doubles.begin() + static_cast<std::ptrdiff_t>((count + 1) / 2));
    const ValueSums a = fast.sums_of_doubles(finite.data(), finite.size());
    const ValueSums b = plain.sums_of_doubles(finite.data(), finite.size());
    EXPECT_EQ(a.sum, b.sum);
    EXPECT_EQ(a.least, b.least);
    EXPECT_EQ(a.most, b.most);
    EXPECT_EQ(fast.squares_of_doubles(finite.data(), finite.size(), 1.5),
              plain.squares_of_doubles(finite.data(), finite.size(), 1.5));
  }
}

TEST(ValueKernels, AllGiveTheSameBits) {
  for (const ValueKernels* fast : fast_kernels()) expect_same_bits(*fast);
}

TEST(ValueKernels, Log1pIsThatOfTheCLibrary) {
  const std::vector<float> floats = odd_values<float>(4001);
  std::vector<float> computed = floats;
  value_kernels().log1p_floats(computed.data(), computed.size());
  std::size_t apart = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const auto exact = static_cast<float>(std::log1p(static_cast<double>(floats[i])));
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(computed[i])) << floats[i];
      continue;
    }
    if (exact != computed[i]) ++apart;
    EXPECT_TRUE(exact == computed[i] || std::nextafter(exact, computed[i]) == computed[i]) << floats[i];
  }
  EXPECT_LE(apart, floats.size() / 16);
  const std::vector<double> doubles = odd_values<double>(4001);
  std::vector<double> precise = doubles;
  value_kernels().log1p_doubles(precise.data(), precise.size());
  for (std::size_t i = 0; i < doubles.size(); ++i) {
    const double exact = std::log1p(doubles[i]);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(precise[i])) << doubles[i];
    } else if (std::isinf(exact)) {
      EXPECT_EQ(precise[i], exact);
    } else {
      EXPECT_NEAR(precise[i], exact, 4e-16 * std::abs(exact)) << doubles[i];
    }
  }
}

TEST(ValueKernels, ClipKeepsWhatIsNoNumber) {
  std::vector<float> values = {-3, 0.5F, 12, std::numeric_limits<float>::quiet_NaN()};
  value_kernels().clip_floats(values.data(), values.size(), 0, 10);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[1], 0.5F);
  EXPECT_EQ(values[2], 10);
  EXPECT_TRUE(std::isnan(values[3]));
}

}  // namespace
}  // namespace wflow::converters
