// SPDX-License-Identifier: Apache-2.0
// The distribution of values in counts that add up exactly: merged in any order they are the same. Each value
// falls into one of 64 buckets an octave (the sign, the exponent and the upper 6 bits of the mantissa of its
// float32), as HdrHistogram and DDSketch have them, so that a quantile is within 1.6 % of the value; whole
// numbers up to 127 have a bucket each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "converters/dtype.h"

namespace wflow::converters {

// Counts of the buckets that are not empty, ascending.
using BucketCounts = std::vector<std::pair<std::int32_t, std::uint64_t>>;

// Of the finite values.
BucketCounts count_buckets(DType dtype, std::span<const std::uint8_t> values);

std::int32_t bucket_of(double value);
bool is_bucket(std::int32_t number);  // whether a value can have it
// The bucket's least magnitude and the next one's, ascending.
std::pair<double, double> bucket_edges(std::int32_t bucket);

class Sketch {
 public:
  void add(const BucketCounts& counts);
  void add(const Sketch& other);
  // The finite values. `known`: all are finite, and between these two.
  void add(DType dtype, std::span<const std::uint8_t> values,
           std::optional<std::pair<double, double>> known = std::nullopt);
  BucketCounts counts() const;
  std::uint64_t total() const { return total_; }
  // The value below which the fraction `level` of all values lies, between `least` and `most` (which are
  // known exactly).
  double quantile(double level, double least, double most) const;
  bool operator==(const Sketch& other) const { return counts() == other.counts(); }

 private:
  void cover(std::int32_t least, std::int32_t most);
  template <typename Value>
  void add_values(std::span<const std::uint8_t> bytes, std::optional<std::pair<double, double>> known);
  template <typename Value>
  void add_few(std::span<const std::uint8_t> bytes);
  template <typename Value>
  void add_many(std::span<const std::uint8_t> bytes, std::int32_t least, std::int32_t most);

  std::int32_t first_ = 0;  // the bucket of counts_[0]
  std::vector<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
};

}  // namespace wflow::converters
