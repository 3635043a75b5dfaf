// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace wflow::converters {

namespace {

constexpr int kDropped = 17;              // lower bits of the mantissa
constexpr std::size_t kFewValues = 2048;  // sorted; more are counted in a table
constexpr std::int32_t kMostBucket = 0x7f7fffff >> kDropped;

std::int32_t bucket_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>((bits & 0x7fffffffU) >> kDropped);
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}

// Doubles beyond float32 count as its greatest.
float to_float(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kMost, kMost));
}

template <typename Value, typename Function>
void for_each_bucket(std::span<const std::uint8_t> bytes, Function function) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(Value); ++i) {
    Value value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    if constexpr (std::is_floating_point_v<Value>) {
      if (!std::isfinite(value)) continue;
    }
    if constexpr (sizeof(Value) == sizeof(double)) {
      function(bucket_of_float(to_float(static_cast<double>(value))));
    } else {
      function(bucket_of_float(static_cast<float>(value)));
    }
  }
}

BucketCounts sorted_counts(std::vector<std::int32_t> buckets) {
  std::sort(buckets.begin(), buckets.end());
  BucketCounts counts;
  for (const std::int32_t bucket : buckets) {
    if (counts.empty() || counts.back().first != bucket) counts.emplace_back(bucket, 0);
    ++counts.back().second;
  }
  return counts;
}

template <typename Value>
BucketCounts count_typed(std::span<const std::uint8_t> bytes) {
  if (bytes.size() / sizeof(Value) <= kFewValues) {
    std::vector<std::int32_t> buckets;
    buckets.reserve(bytes.size() / sizeof(Value));
    for_each_bucket<Value>(bytes, [&](std::int32_t bucket) { buckets.push_back(bucket); });
    return sorted_counts(std::move(buckets));
  }
  std::vector<std::uint32_t> table(2 * static_cast<std::size_t>(kMostBucket) + 1, 0);
  for_each_bucket<Value>(
      bytes, [&](std::int32_t bucket) { ++table[static_cast<std::size_t>(bucket + kMostBucket)]; });
  BucketCounts counts;
  for (std::size_t k = 0; k < table.size(); ++k) {
    if (table[k] > 0) counts.emplace_back(static_cast<std::int32_t>(k) - kMostBucket, table[k]);
  }
  return counts;
}

}  // namespace

void merge(BucketCounts& total, BucketCounts part) {
  if (total.empty()) {
    total = std::move(part);
    return;
  }
  BucketCounts sum;
  auto a = total.begin();
  auto b = part.begin();
  while (a != total.end() || b != part.end()) {
    if (b == part.end() || (a != total.end() && a->first < b->first)) {
      sum.push_back(*a++);
    } else if (a == total.end() || b->first < a->first) {
      sum.push_back(*b++);
    } else {
      sum.emplace_back(a->first, a->second + b->second);
      ++a;
      ++b;
    }
  }
  total = std::move(sum);
}

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

BucketCounts count_buckets(DType dtype, std::span<const std::uint8_t> values) {
  return with_type(dtype, [&](auto zero) { return count_typed<decltype(zero)>(values); });
}

void Sketch::add(const BucketCounts& counts) {
  if (counts.empty()) return;
  const std::int32_t least = counts.front().first;
  const std::int32_t most = counts.back().first;
  if (counts_.empty()) first_ = least;
  if (least < first_) {
    counts_.insert(counts_.begin(), static_cast<std::size_t>(first_ - least), 0);
    first_ = least;
  }
  const auto needed = static_cast<std::size_t>(most - first_) + 1;
  if (counts_.size() < needed) counts_.resize(needed, 0);
  for (const auto& [bucket, count] : counts) {
    counts_[static_cast<std::size_t>(bucket - first_)] += count;
    total_ += count;
  }
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
    const auto [from, to] = bucket_edges(first_ + static_cast<std::int32_t>(k));
    const double low = std::max(from, least);
    const double high = std::min(to, most);
    return std::clamp(low + (high - low) * (rank - below) / count, least, most);
  }
  return most;
}

}  // namespace wflow::converters
