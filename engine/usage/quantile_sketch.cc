// SPDX-License-Identifier: Apache-2.0
#include "engine/usage/quantile_sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace wflow::engine {

namespace {

constexpr double kGamma = (1 + QuantileSketch::kRelativeError) / (1 - QuantileSketch::kRelativeError);

bool get_real(std::string_view& bytes, double& value) {
  if (bytes.size() < sizeof(double)) return false;
  std::uint64_t bits = 0;
  for (unsigned i = 0; i < sizeof(double); ++i)
    bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  bytes.remove_prefix(sizeof(double));
  value = std::bit_cast<double>(bits);
  return true;
}

}  // namespace

double QuantileSketch::bound(std::int32_t bucket) {
  return std::pow(kGamma, bucket);
}

void QuantileSketch::add(double value) {
  ++count_;
  if (!std::isfinite(value) || value <= 0) {
    ++zeros_;
    return;
  }
  sum_ += value;
  most_ = std::max(most_, value);
  static const double scale = 1 / std::log(kGamma);
  ++buckets_[static_cast<std::int32_t>(std::ceil(std::log(value) * scale))];
}

void QuantileSketch::merge(const QuantileSketch& other) {
  for (const auto& [bucket, count] : other.buckets_) buckets_[bucket] += count;
  zeros_ += other.zeros_;
  count_ += other.count_;
  sum_ += other.sum_;
  most_ = std::max(most_, other.most_);
}

double QuantileSketch::quantile(double fraction) const {
  if (count_ == 0) return 0;
  const auto rank =
      static_cast<std::uint64_t>(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(count_ - 1));
  std::uint64_t below = zeros_;
  if (rank < below) return 0;
  for (const auto& [bucket, count] : buckets_) {
    below += count;
    // The middle of the bucket, which is at most the relative error away from all in it.
    if (rank < below) return std::min(most_, 2 * bound(bucket) / (1 + kGamma));
  }
  return most_;
}

void QuantileSketch::write(std::string& bytes) const {
  put_varint(bytes, zeros_);
  put_little_endian(bytes, std::bit_cast<std::uint64_t>(sum_));
  put_little_endian(bytes, std::bit_cast<std::uint64_t>(most_));
  put_varint(bytes, buckets_.size());
  std::int64_t before = 0;
  for (const auto& [bucket, count] : buckets_) {
    put_signed(bytes, bucket - before);
    put_varint(bytes, count);
    before = bucket;
  }
}

bool QuantileSketch::read(std::string_view& bytes) {
  *this = {};
  std::uint64_t buckets = 0;
  if (!get_varint(bytes, zeros_) || !get_real(bytes, sum_) || !get_real(bytes, most_) ||
      !get_varint(bytes, buckets))
    return false;
  count_ = zeros_;
  std::int64_t bucket = 0;
  for (std::uint64_t i = 0; i < buckets; ++i) {
    std::int64_t step = 0;
    std::uint64_t count = 0;
    if (!get_signed(bytes, step) || !get_varint(bytes, count)) return false;
    bucket += step;
    buckets_[static_cast<std::int32_t>(bucket)] = count;
    count_ += count;
  }
  return true;
}

}  // namespace wflow::engine
