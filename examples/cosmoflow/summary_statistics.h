// SPDX-License-Identifier: Apache-2.0
// What a cosmologist would measure on a cube instead of showing it to a network.
#pragma once

#include <span>
#include <vector>

#include "power_spectrum.h"
#include "shard_reader.h"

namespace cola {

class SummaryStatistics {
 public:
  // `scale` per channel: the mean density, so that counts and densities give the same figures.
  SummaryStatistics(const Shape& shape, std::vector<double> scale);

  // log P(k) of each channel in shells whose width grows with k, up to the Nyquist frequency of the shortest
  // side.
  void append_log_power(std::span<const float> sample, std::vector<double>& features);

  // For each channel of log(density + 0.1): ten quantiles and four moments.
  void append_one_point(std::span<const float> sample, std::vector<double>& features);

  std::size_t shells() const { return edges_.size() - 1; }

 private:
  Shape shape_;
  std::vector<double> scale_;
  ModeMeter meter_;
  std::vector<double> edges_;  // in units of the lowest wave number of the shortest side
  std::vector<double> logs_;
};

// Mean of each channel.
std::vector<double> channel_means(const Shape& shape, std::span<const float> sample);

}  // namespace cola
