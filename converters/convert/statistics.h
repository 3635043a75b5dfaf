// SPDX-License-Identifier: Apache-2.0
// Running statistics that merge: the same values in the same pieces, merged in the same order, give the same
// bits on every machine (statistics.cc is compiled without contraction of a*b+c). And distributions of
// values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "converters/dtype.h"
#include "converters/shards/manifest.h"

namespace wflow::converters {

struct Moments {
  std::uint64_t count = 0;
  double mean = 0;
  double m2 = 0;  // sum of squared differences from the mean
  double min = 0;
  double max = 0;
  // The method of Chan, Golub and LeVeque (1979).
  void merge(const Moments& other);
  bool operator==(const Moments&) const = default;
};

void merge(std::vector<Moments>& total, const std::vector<Moments>& part);

bool all_finite(DType dtype, std::span<const std::uint8_t> values);

// The moments of the finite values.
Moments moments_of(DType dtype, std::span<const std::uint8_t> values);
Moments moments_of(double value);

ChannelStatistics summary(const Moments& moments);

// The distribution of values in counts that add up exactly: merged in any order they are the same. Each value
// falls into one of 64 buckets an octave (the sign, the exponent and the upper 6 bits of the mantissa of its
// float32), as in HdrHistogram and DDSketch, so that a quantile is within 1.6 % of the value; whole
// numbers up to 127 have separate buckets.

// Counts of the buckets that are not empty, ascending.
using BucketCounts = std::vector<std::pair<std::int32_t, std::uint64_t>>;

std::int32_t bucket_of(double value);
bool is_bucket(std::int32_t number);  // true if a value can have it
// The edges of a bucket: its least magnitude and that of the next, ascending.
std::pair<double, double> bucket_edges(std::int32_t bucket);

class Sketch {
 public:
  void add(const BucketCounts& counts);
  void add(const Sketch& other);
  // Adds the finite values. `known`: all are finite, and between these two.
  void add(DType dtype, std::span<const std::uint8_t> values,
           std::optional<std::pair<double, double>> known = std::nullopt);
  BucketCounts counts() const;
  std::uint64_t total() const { return total_; }
  // The value below which the fraction `level` of all values lies, limited to `least` and `most`, which are
  // exact.
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

// A histogram whose bins are of equal width and begin and end where buckets do, so that each count is exact.
struct Histogram {
  double low = 0, width = 0;  // the first bin begins at `low`
  std::vector<std::uint64_t> counts;
  std::uint64_t below = 0, above = 0;  // values outside of the bins
};
// Bins that cover `least` to `most`, at most `bins` of them; no bin unless least < most.
Histogram histogram_of(const Sketch& sketch, double least, double most, std::size_t bins);

}  // namespace wflow::converters
