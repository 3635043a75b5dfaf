// SPDX-License-Identifier: Apache-2.0
// Running statistics that merge: the same values in the same pieces, merged in the same order, give the same
// bits on every machine (this file is compiled without contraction of a*b+c).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "converters/dtype.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

struct Moments {
  std::uint64_t count = 0;
  double mean = 0;
  double m2 = 0;  // sum of squared differences from the mean
  double min = 0;
  double max = 0;
  // Chan, Golub and LeVeque 1979.
  void merge(const Moments& other);
  bool operator==(const Moments&) const = default;
};

void merge(std::vector<Moments>& total, const std::vector<Moments>& part);

bool all_finite(DType dtype, std::span<const std::uint8_t> values);

// Of the finite values.
Moments moments_of(DType dtype, std::span<const std::uint8_t> values);
Moments moments_of(double value);

ChannelStatistics summary(const Moments& moments);

}  // namespace wflow::converters
