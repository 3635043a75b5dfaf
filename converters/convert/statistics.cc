// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/statistics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace wflow::converters {

namespace {

// Fixed lanes: the order of additions is the same whatever width of vector the compiler uses.
constexpr std::size_t kLanes = 8;
using Lanes = std::array<double, kLanes>;

double total(const Lanes& l) {
  return ((l[0] + l[4]) + (l[1] + l[5])) + ((l[2] + l[6]) + (l[3] + l[7]));
}

template <typename Value>
Value value_at(const std::uint8_t* bytes, std::size_t i) {
  Value value;
  std::memcpy(&value, bytes + i * sizeof(Value), sizeof(Value));
  return value;
}

// Two passes, the second around the mean, so that nothing cancels.
template <typename Value>
Moments moments_of_values(const std::uint8_t* bytes, std::size_t count) {
  if (count == 0) return {};
  Lanes sums{};
  Value least = value_at<Value>(bytes, 0);
  Value most = least;
  for (std::size_t i = 0; i < count; ++i) {
    const Value value = value_at<Value>(bytes, i);
    sums[i % kLanes] += static_cast<double>(value);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  const double mean = total(sums) / static_cast<double>(count);
  Lanes squares{};
  for (std::size_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(value_at<Value>(bytes, i)) - mean;
    squares[i % kLanes] += difference * difference;
  }
  return {count, mean, total(squares), static_cast<double>(least), static_cast<double>(most)};
}

template <typename Word>
bool no_full_exponent(std::span<const std::uint8_t> values, Word exponent) {
  bool full = false;
  for (std::size_t i = 0; i < values.size() / sizeof(Word); ++i) {
    full |= (value_at<Word>(values.data(), i) & exponent) == exponent;
  }
  return !full;
}

std::vector<double> finite_values(DType dtype, std::span<const std::uint8_t> values) {
  std::vector<double> result;
  with_type(dtype, [&](auto zero) {
    for (std::size_t i = 0; i < values.size() / sizeof(zero); ++i) {
      const double value = static_cast<double>(value_at<decltype(zero)>(values.data(), i));
      if (std::isfinite(value)) result.push_back(value);
    }
  });
  return result;
}

}  // namespace

void Moments::merge(const Moments& other) {
  if (other.count == 0) return;
  if (count == 0) {
    *this = other;
    return;
  }
  const double n = static_cast<double>(count);
  const double k = static_cast<double>(other.count);
  const double difference = other.mean - mean;
  mean += difference * (k / (n + k));
  m2 += other.m2 + difference * difference * (n * k / (n + k));
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  count += other.count;
}

void merge(std::vector<Moments>& total, const std::vector<Moments>& part) {
  if (total.empty()) total.resize(part.size());
  WFLOW_CHECK(total.size() == part.size());
  for (std::size_t k = 0; k < part.size(); ++k) total[k].merge(part[k]);
}

bool all_finite(DType dtype, std::span<const std::uint8_t> values) {
  if (dtype == DType::float32) return no_full_exponent<std::uint32_t>(values, 0x7f800000U);
  if (dtype == DType::float64) return no_full_exponent<std::uint64_t>(values, 0x7ff0000000000000ULL);
  return true;
}

Moments moments_of(DType dtype, std::span<const std::uint8_t> values) {
  if (!all_finite(dtype, values)) {
    const std::vector<double> finite = finite_values(dtype, values);
    return moments_of_values<double>(reinterpret_cast<const std::uint8_t*>(finite.data()), finite.size());
  }
  return with_type(dtype, [&](auto zero) {
    return moments_of_values<decltype(zero)>(values.data(), values.size() / sizeof(zero));
  });
}

Moments moments_of(double value) {
  if (!std::isfinite(value)) return {};
  return {1, value, 0, value, value};
}

ChannelStatistics summary(const Moments& moments) {
  if (moments.count == 0) return {};
  return {moments.mean, std::sqrt(moments.m2 / static_cast<double>(moments.count)), moments.min, moments.max};
}

}  // namespace wflow::converters
