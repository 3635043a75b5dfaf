// SPDX-License-Identifier: Apache-2.0
#include "summary_statistics.h"

#include <algorithm>
#include <cmath>

#include "error.h"

namespace cola {
namespace {

constexpr double kQuantiles[] = {0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999};
constexpr double kGrowth = 1.18;    // ratio of a shell's outer edge to its inner one, once wider than one unit
constexpr double kFloor = 0.1;      // keeps the logarithm of an empty cell finite
constexpr double kNoPower = 1e-30;  // and that of an empty shell

int shortest_side(const Shape& shape) {
  return std::min({shape.depth, shape.height, shape.width});
}

}  // namespace

std::vector<double> channel_means(const Shape& shape, std::span<const float> sample) {
  std::vector<double> means;
  for (int channel = 0; channel < shape.channels; ++channel) {
    double sum = 0;
    for (float value : sample.subspan(channel * shape.cells(), shape.cells())) sum += value;
    means.push_back(sum / static_cast<double>(shape.cells()));
  }
  return means;
}

SummaryStatistics::SummaryStatistics(const Shape& shape, std::vector<double> scale)
    : shape_(shape), scale_(std::move(scale)), meter_(shape.depth, shape.height, shape.width), edges_{0.5} {
  const double last = shortest_side(shape) / 2.0;
  if (last < 2)
    throw Error(ExitCode::input, "cubes of fewer than 4 cells a side have no power spectrum to speak of.");
  while (edges_.back() + 1 <= last)
    edges_.push_back(std::min(last, std::max(edges_.back() + 1, edges_.back() * kGrowth)));
  for (double scale_of_channel : scale_) {
    if (!(scale_of_channel > 0))
      throw Error(ExitCode::input, "the first sample has a channel whose mean is not positive.");
  }
}

void SummaryStatistics::append_log_power(std::span<const float> sample, std::vector<double>& features) {
  const double side = shortest_side(shape_);
  const double sx = side / shape_.depth, sy = side / shape_.height, sz = side / shape_.width;
  for (int channel = 0; channel < shape_.channels; ++channel) {
    const auto values = sample.subspan(channel * shape_.cells(), shape_.cells());
    const auto norm = static_cast<float>(1 / scale_[channel]);
    std::transform(values.begin(), values.end(), meter_.field().begin(),
                   [norm](float v) { return v * norm; });
    meter_.transform();
    std::vector<double> power(shells()), weights(shells());
    meter_.for_each([&](int x, int y, int z, double weight, std::complex<float> mode) {
      const double k = std::sqrt(sx * sx * x * x + sy * sy * y * y + sz * sz * z * z);
      if (k < edges_.front() || k >= edges_.back()) return;
      const auto shell = std::upper_bound(edges_.begin(), edges_.end(), k) - edges_.begin() - 1;
      power[shell] += weight * std::norm(mode);
      weights[shell] += weight;
    });
    for (std::size_t i = 0; i < shells(); ++i) {
      features.push_back(std::log(weights[i] > 0 ? power[i] / weights[i] + kNoPower : kNoPower));
    }
  }
}

void SummaryStatistics::append_one_point(std::span<const float> sample, std::vector<double>& features) {
  logs_.resize(shape_.cells());
  const auto count = static_cast<double>(shape_.cells());
  for (int channel = 0; channel < shape_.channels; ++channel) {
    const auto values = sample.subspan(channel * shape_.cells(), shape_.cells());
    double mean = 0;
    for (std::size_t i = 0; i < logs_.size(); ++i) {
      logs_[i] = std::log(values[i] / scale_[channel] + kFloor);
      mean += logs_[i] / count;
    }
    double m2 = 0, m3 = 0, m4 = 0;
    for (double value : logs_) {
      const double d = value - mean;
      m2 += d * d / count;
      m3 += d * d * d / count;
      m4 += d * d * d * d / count;
    }
    const double sigma = std::sqrt(m2) + kNoPower;
    features.insert(features.end(),
                    {mean, std::log(sigma), m3 / (sigma * sigma * sigma), m4 / (m2 * m2 + kNoPower)});
    auto from = logs_.begin();
    for (double quantile : kQuantiles) {
      const auto at = logs_.begin() + static_cast<std::ptrdiff_t>(quantile * (count - 1));
      std::nth_element(from, at, logs_.end());
      features.push_back(*at);
      from = at;
    }
  }
}

}  // namespace cola
