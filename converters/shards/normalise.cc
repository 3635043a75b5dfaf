// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "converters/shards/manifest.h"

namespace wflow::converters {

namespace {

struct Line {
  double factor = 1;
  double offset = 0;
};

// A channel that is constant in training is only shifted, so that other values can be restored, too. The same
// rule as in python/wflow and the trainer.
Line line_of(const Normalisation& n, const ChannelStatistics& s) {
  if (n.kind == "standardise") {
    const double factor = s.std > 0 ? 1 / s.std : 1;
    return {factor, -s.mean * factor};
  }
  const double factor = s.max > s.min ? (n.high - n.low) / (s.max - s.min) : 1;
  return {factor, n.low - s.min * factor};
}

using Knots = std::vector<std::pair<double, double>>;  // level and value

// Linear between the knots; for several knots with the same value, the middle of their levels.
double level_of(const Knots& knots, double value) {
  const auto first = std::lower_bound(knots.begin(), knots.end(), value,
                                      [](const auto& knot, double v) { return knot.second < v; });
  if (first == knots.end()) return knots.back().first;
  const auto behind =
      std::upper_bound(first, knots.end(), value, [](double v, const auto& knot) { return v < knot.second; });
  if (behind != first) return (first->first + (behind - 1)->first) / 2;
  if (first == knots.begin()) return first->first;
  const auto& [level, at] = *(first - 1);
  return level + (first->first - level) * (value - at) / (first->second - at);
}

double value_of_level(const Knots& knots, double level) {
  const auto above = std::upper_bound(knots.begin(), knots.end(), level,
                                      [](double l, const auto& knot) { return l < knot.first; });
  if (above == knots.begin()) return knots.front().second;
  if (above == knots.end()) return knots.back().second;
  const auto& [from, at] = *(above - 1);
  return at + (above->second - at) * (level - from) / (above->first - from);
}

constexpr double kLeastLevel = 1e-4;  // keeps the result finite for training

// The inverse of normal_below(), by Newton's method from Winitzki's approximation (2008) of the inverse error
// function.
double normal_deviate(double level) {
  const double clamped = std::clamp(level, kLeastLevel, 1 - kLeastLevel);
  const double x = 2 * clamped - 1;
  constexpr double kA = 0.147;
  constexpr double kPi = 3.14159265358979323846;
  const double logarithm = std::log(1 - x * x);
  const double term = 2 / (kPi * kA) + logarithm / 2;
  double deviate = std::copysign(std::sqrt(2 * (std::sqrt(term * term - logarithm / kA) - term)), x);
  for (int k = 0; k < 3; ++k)
    deviate -= (normal_below(deviate) - clamped) * std::sqrt(2 * kPi) * std::exp(deviate * deviate / 2);
  return deviate;
}

template <typename Function>
void for_each_channel(const FieldInfo& field, std::span<float> values, std::size_t first, std::size_t count,
                      Function function) {
  WFLOW_CHECK(count > 0 && values.size() % count == 0 && first + count <= field.statistics.size());
  const std::size_t length = values.size() / count;
  for (std::size_t c = 0; c < count; ++c)
    function(field.statistics[first + c], values.subspan(c * length, length));
}

}  // namespace

void apply_normalisation(const FieldInfo& field, std::span<float> values, std::size_t first,
                         std::size_t count) {
  const Normalisation& n = field.normalisation;
  if (n.kind.empty()) return;
  for_each_channel(field, values, first, count, [&](const ChannelStatistics& s, std::span<float> channel) {
    if (n.kind != "quantile") {
      const Line line = line_of(n, s);
      for (float& value : channel) value = static_cast<float>(value * line.factor + line.offset);
    } else if (!s.quantiles.empty()) {
      for (float& value : channel) {
        const double level = level_of(s.quantiles, value);
        value = static_cast<float>(n.shape == "normal" ? normal_deviate(level) : level);
      }
    }
  });
}

void apply_normalisation(const FieldInfo& field, std::span<float> values) {
  apply_normalisation(field, values, 0, std::max<std::size_t>(1, field.statistics.size()));
}

void undo_normalisation(const FieldInfo& field, std::span<float> values) {
  const Normalisation& n = field.normalisation;
  if (n.kind.empty()) return;
  for_each_channel(field, values, 0, std::max<std::size_t>(1, field.statistics.size()),
                   [&](const ChannelStatistics& s, std::span<float> channel) {
                     if (n.kind != "quantile") {
                       const Line line = line_of(n, s);
                       for (float& value : channel)
                         value = static_cast<float>((value - line.offset) / line.factor);
                     } else if (!s.quantiles.empty()) {
                       for (float& value : channel)
                         value = static_cast<float>(
                             value_of_level(s.quantiles, n.shape == "normal" ? normal_below(value) : value));
                     }
                   });
}

}  // namespace wflow::converters
