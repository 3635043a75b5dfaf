// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "converters/convert/statistics.h"
#include "converters/values/value_kernels.h"

namespace wflow::converters {

namespace {

constexpr int kDropped = kBucketShift;        // lower bits of the mantissa
constexpr int kMantissaBits = 23 - kDropped;  // upper bits of it that a bucket keeps

std::int32_t bucket_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>((bits & 0x7fffffffU) >> kDropped);
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}

// Doubles beyond the range of float32 count as its greatest value.
float to_float(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMost, kMost));
}

// The float32 that selects the bucket; NaN if the value is not finite.
template <typename Value>
float counted_float(Value value) {
  if constexpr (std::is_same_v<Value, double>) {
    return std::isfinite(value) ? to_float(value) : std::numeric_limits<float>::quiet_NaN();
  } else if constexpr (sizeof(Value) == sizeof(double)) {
    return to_float(static_cast<double>(value));
  } else {
    return static_cast<float>(value);
  }
}

// Calls f(buckets, their range) for one block after the other.
template <typename Value, typename Function>
void for_each_block(std::span<const std::uint8_t> bytes, Function f) {
  constexpr std::size_t kBlock = 2048;
  std::array<float, kBlock> values;
  std::array<std::int32_t, kBlock> buckets;
  const std::size_t count = bytes.size() / sizeof(Value);
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t length = std::min(kBlock, count - at);
    if constexpr (std::is_same_v<Value, float>) {
      std::memcpy(values.data(), bytes.data() + at * sizeof(Value), length * sizeof(Value));
    } else {
      for (std::size_t i = 0; i < length; ++i) {
        Value value;
        std::memcpy(&value, bytes.data() + (at + i) * sizeof value, sizeof value);
        values[i] = counted_float(value);
      }
    }
    const BucketRange range = value_kernels().buckets_of_floats(values.data(), length, buckets.data());
    f(std::span<const std::int32_t>(buckets).first(length), range);
  }
}

// The range of all blocks.
template <typename Value>
BucketRange bucket_range(std::span<const std::uint8_t> bytes) {
  BucketRange all{std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()};
  for_each_block<Value>(bytes, [&](auto, BucketRange range) {
    all.least = std::min(all.least, range.least);
    all.most = std::max(all.most, range.most);
  });
  return all;
}

// The range of the buckets of finite values; the least is above the most where there is none.
BucketRange finite_range(std::span<const std::int32_t> buckets) {
  BucketRange range{std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()};
  for (const std::int32_t bucket : buckets) {
    if (std::abs(bucket) > kMostBucket) continue;
    range.least = std::min(range.least, bucket);
    range.most = std::max(range.most, bucket);
  }
  return range;
}

}  // namespace

std::int32_t bucket_of(double value) {
  return bucket_of_float(to_float(value));
}

bool is_bucket(std::int32_t number) {
  return number >= -kMostBucket && number <= kMostBucket;
}

std::pair<double, double> bucket_edges(std::int32_t bucket) {
  const auto edge = [](std::int32_t magnitude) {
    const std::uint32_t bits = static_cast<std::uint32_t>(magnitude) << kDropped;
    return static_cast<double>(std::bit_cast<float>(std::min(bits, 0x7f7fffffU)));
  };
  if (bucket == 0) return {-edge(1), edge(1)};
  const std::int32_t magnitude = std::abs(bucket);
  if (bucket > 0) return {edge(magnitude), edge(magnitude + 1)};
  return {-edge(magnitude + 1), -edge(magnitude)};
}

// Extends counts_ to the buckets from `least` to `most`.
void Sketch::cover(std::int32_t least, std::int32_t most) {
  if (counts_.empty()) first_ = least;
  if (least < first_) {
    counts_.insert(counts_.begin(), static_cast<std::size_t>(first_ - least), 0);
    first_ = least;
  }
  const auto needed = static_cast<std::size_t>(most - first_) + 1;
  if (counts_.size() < needed) counts_.resize(needed, 0);
}

void Sketch::add(const BucketCounts& counts) {
  if (counts.empty()) return;
  cover(counts.front().first, counts.back().first);
  for (const auto& [bucket, count] : counts) {
    counts_[static_cast<std::size_t>(bucket - first_)] += count;
    total_ += count;
  }
}

void Sketch::add(const Sketch& other) {
  if (other.counts_.empty()) return;
  cover(other.first_, other.first_ + static_cast<std::int32_t>(other.counts_.size()) - 1);
  const auto shift = static_cast<std::size_t>(other.first_ - first_);
  for (std::size_t k = 0; k < other.counts_.size(); ++k) counts_[shift + k] += other.counts_[k];
  total_ += other.total_;
}

// Counts one value after the other; skips those that are not finite.
template <typename Value>
void Sketch::add_few(std::span<const std::uint8_t> bytes) {
  for_each_block<Value>(bytes, [&](std::span<const std::int32_t> buckets, BucketRange range) {
    const bool finite = range.least >= -kMostBucket && range.most <= kMostBucket;
    if (!finite) range = finite_range(buckets);
    if (range.least > range.most) return;  // no value is finite
    cover(range.least, range.most);
    for (const std::int32_t bucket : buckets) {
      if (!finite && std::abs(bucket) > kMostBucket) continue;
      ++counts_[static_cast<std::size_t>(bucket - first_)];
      ++total_;
    }
  });
}

// Uses several tables in turn, to avoid reading a counter directly after writing it.
template <typename Value>
void Sketch::add_many(std::span<const std::uint8_t> bytes, std::int32_t least, std::int32_t most) {
  constexpr std::size_t kTables = 4;
  const auto width = static_cast<std::size_t>(most - least) + 1;
  std::vector<std::uint32_t> tables(kTables * width, 0);
  for_each_block<Value>(bytes, [&](std::span<const std::int32_t> buckets, BucketRange) {
    std::uint32_t* const table = tables.data();
    std::size_t i = 0;
    for (; i + kTables <= buckets.size(); i += kTables) {
      ++table[static_cast<std::size_t>(buckets[i] - least)];
      ++table[width + static_cast<std::size_t>(buckets[i + 1] - least)];
      ++table[2 * width + static_cast<std::size_t>(buckets[i + 2] - least)];
      ++table[3 * width + static_cast<std::size_t>(buckets[i + 3] - least)];
    }
    for (; i < buckets.size(); ++i) ++table[static_cast<std::size_t>(buckets[i] - least)];
  });
  cover(least, most);
  for (std::size_t k = 0; k < width; ++k) {
    std::uint64_t count = 0;
    for (std::size_t t = 0; t < kTables; ++t) count += tables[t * width + k];
    counts_[static_cast<std::size_t>(least - first_) + k] += count;
  }
  total_ += bytes.size() / sizeof(Value);
}

template <typename Value>
void Sketch::add_values(std::span<const std::uint8_t> bytes, std::optional<std::pair<double, double>> known) {
  constexpr std::size_t kMany = 4096;  // number of values for which the tables pay off
  if (bytes.size() / sizeof(Value) < kMany) {
    add_few<Value>(bytes);
    return;
  }
  const BucketRange range =
      known ? BucketRange{bucket_of(known->first), bucket_of(known->second)} : bucket_range<Value>(bytes);
  if (range.least < -kMostBucket || range.most > kMostBucket) {
    add_few<Value>(bytes);
  } else {
    add_many<Value>(bytes, range.least, range.most);
  }
}

void Sketch::add(DType dtype, std::span<const std::uint8_t> values,
                 std::optional<std::pair<double, double>> known) {
  with_type(dtype, [&](auto zero) { add_values<decltype(zero)>(values, known); });
}

BucketCounts Sketch::counts() const {
  BucketCounts result;
  for (std::size_t k = 0; k < counts_.size(); ++k) {
    if (counts_[k] > 0) result.emplace_back(first_ + static_cast<std::int32_t>(k), counts_[k]);
  }
  return result;
}

double Sketch::quantile(double level, double least, double most) const {
  if (total_ == 0) return 0;
  const double rank = std::clamp(level, 0.0, 1.0) * static_cast<double>(total_);
  double below = 0;
  for (std::size_t k = 0; k < counts_.size(); ++k) {
    const auto count = static_cast<double>(counts_[k]);
    if (count == 0 || below + count < rank) {
      below += count;
      continue;
    }
    // The ends of the range are exact, values between them are known by bucket. So the quantiles of a column
    // of 0 and 1 are 0 or 1.
    const bool is_first = below == 0;
    const bool is_last = below + count >= static_cast<double>(total_);
    if (is_first != is_last) return is_first ? least : most;
    const auto [from, to] = bucket_edges(first_ + static_cast<std::int32_t>(k));
    const double low = std::max(from, least);
    const double high = std::min(to, most);
    return std::clamp(low + (high - low) * (rank - below) / count, least, most);
  }
  return most;
}

Histogram histogram_of(const Sketch& sketch, double least, double most, std::size_t bins) {
  if (!(most > least) || bins == 0) return {};
  // Edges of buckets of smaller magnitude are multiples of the width of larger ones, so that all multiples of
  // the greatest width up to here are edges. Twice this width has the same property.
  const float greatest =
      std::max(to_float(std::max(std::abs(least), std::abs(most))), std::numeric_limits<float>::min());
  Histogram histogram;
  histogram.width = std::ldexp(1.0, std::ilogb(greatest) - kMantissaBits);
  const auto number = [&](double value) { return std::floor(value / histogram.width); };
  while (number(most) - number(least) >= static_cast<double>(bins)) histogram.width *= 2;
  const double first = number(least);
  histogram.low = first * histogram.width;
  histogram.counts.resize(static_cast<std::size_t>(number(most) - first) + 1);
  for (const auto& [bucket, count] : sketch.counts()) {
    const auto [from, to] = bucket_edges(bucket);
    const double at = number(from + (to - from) / 2) - first;
    if (at < 0) {
      histogram.below += count;
    } else if (at < static_cast<double>(histogram.counts.size())) {
      histogram.counts[static_cast<std::size_t>(at)] += count;
    } else {
      histogram.above += count;
    }
  }
  return histogram;
}

}  // namespace wflow::converters
