// SPDX-License-Identifier: Apache-2.0
// Quantiles of a stream of numbers in bounded memory, with a relative error of at most 1 %: DDSketch (Masson,
// Rim, Lee 2019, "DDSketch: a fast and fully-mergeable quantile sketch", section 2) without its limit on the
// number of buckets, because sizes and durations span at most some thousands of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/protobuf.h"

namespace wflow::engine {

// Signed numbers are folded so that small ones of either sign stay short (zigzag).
inline void put_signed(std::string& bytes, std::int64_t value) {
  put_varint(bytes, (static_cast<std::uint64_t>(value) << 1U) ^ static_cast<std::uint64_t>(value >> 63));
}

inline bool get_signed(std::string_view& bytes, std::int64_t& value) {
  std::uint64_t folded = 0;
  if (!get_varint(bytes, folded)) return false;
  value = static_cast<std::int64_t>(folded >> 1U) ^ -static_cast<std::int64_t>(folded & 1U);
  return true;
}

class QuantileSketch {
 public:
  static constexpr double kRelativeError = 0.01;

  // A value that is not positive or not finite counts as 0.
  void add(double value);
  void merge(const QuantileSketch& other);

  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  double most() const { return most_; }
  // `fraction` in 0..1: 0.5 is the median. 0 without any value.
  double quantile(double fraction) const;
  const std::map<std::int32_t, std::uint64_t>& buckets() const { return buckets_; }
  // The upper bound of a bucket, for histograms.
  static double bound(std::int32_t bucket);

  // Appends it to `bytes`; read() takes it from the front of `bytes`, false if it is damaged.
  void write(std::string& bytes) const;
  bool read(std::string_view& bytes);

  friend bool operator==(const QuantileSketch&, const QuantileSketch&) = default;

 private:
  std::map<std::int32_t, std::uint64_t> buckets_;  // value v is in bucket ceil(log(v) / log(gamma))
  std::uint64_t zeros_ = 0;
  std::uint64_t count_ = 0;
  double sum_ = 0, most_ = 0;
};

}  // namespace wflow::engine
