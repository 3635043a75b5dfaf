// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "converters/values/value_kernels.h"

namespace wflow::converters {

namespace {

template <typename Value>
Value value_at(const std::uint8_t* bytes, std::size_t i) {
  Value value;
  std::memcpy(&value, bytes + i * sizeof(Value), sizeof(Value));
  return value;
}

// Two passes, the second around the mean, to avoid cancellation. Nothing if a value is not finite.
std::optional<Moments> moments_of_floats(const float* values, std::size_t count) {
  const ValueKernels& kernels = value_kernels();
  const ValueSums sums = kernels.sums_of_floats(values, count);
  if (!std::isfinite(sums.sum)) return std::nullopt;  // finite ones of float32 do not overflow a double
  const double mean = sums.sum / static_cast<double>(count);
  return Moments{count, mean, kernels.squares_of_floats(values, count, mean), sums.least, sums.most};
}

std::optional<Moments> moments_of_doubles(const double* values, std::size_t count) {
  const ValueKernels& kernels = value_kernels();
  const ValueSums sums = kernels.sums_of_doubles(values, count);
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(values), count * sizeof(double));
  if (!std::isfinite(sums.sum) && !all_finite(DType::float64, bytes)) return std::nullopt;
  const double mean = sums.sum / static_cast<double>(count);
  return Moments{count, mean, kernels.squares_of_doubles(values, count, mean), sums.least, sums.most};
}

template <typename Value>
const Value* aligned(std::span<const std::uint8_t> bytes, std::vector<Value>& copy) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(Value) == 0)
    return reinterpret_cast<const Value*>(bytes.data());
  copy.resize(bytes.size() / sizeof(Value));
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy.data();
}

// The moments of values of any type, as float64.
std::vector<double> as_doubles(DType dtype, std::span<const std::uint8_t> bytes) {
  std::vector<double> values;
  with_type(dtype, [&](auto zero) {
    values.resize(bytes.size() / sizeof(zero));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(value_at<decltype(zero)>(bytes.data(), i));
  });
  return values;
}

std::optional<Moments> moments_of_all(DType dtype, std::span<const std::uint8_t> values) {
  const std::size_t count = values.size() / dtype_size(dtype);
  if (dtype == DType::float32) {
    std::vector<float> copy;
    return moments_of_floats(aligned(values, copy), count);
  }
  if (dtype == DType::float64) {
    std::vector<double> copy;
    return moments_of_doubles(aligned(values, copy), count);
  }
  return moments_of_doubles(as_doubles(dtype, values).data(), count);
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
  if (values.empty()) return {};
  if (const auto all = moments_of_all(dtype, values)) return *all;
  const std::vector<double> finite = finite_values(dtype, values);
  return finite.empty() ? Moments{} : moments_of_doubles(finite.data(), finite.size()).value_or(Moments{});
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
