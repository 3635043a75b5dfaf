// SPDX-License-Identifier: Apache-2.0
#include "cli/view/histogram.h"

#include <algorithm>
#include <cmath>

#include "cli/top/chart.h"

namespace wflow::cli {

namespace {

// Buckets of the sketch that span a factor of two.
std::int32_t buckets_of_two() {
  return static_cast<std::int32_t>(std::ceil(std::log(2.0) / std::log(engine::QuantileSketch::bound(1))));
}

}  // namespace

std::vector<HistogramBin> histogram(const engine::QuantileSketch& sketch, std::size_t bins) {
  const auto& buckets = sketch.buckets();
  if (buckets.empty() || bins == 0) return {};
  std::int32_t low = buckets.begin()->first;
  std::int32_t high = buckets.rbegin()->first;
  // Values that are nearly equal are one narrow bar, not a wide spread.
  if (const std::int32_t missing = buckets_of_two() - (high - low); missing > 0) {
    low -= missing / 2;
    high += missing - missing / 2;
  }
  const auto span = static_cast<double>(high - low + 1);
  const std::size_t count = std::min(bins, static_cast<std::size_t>(high - low + 1));
  std::vector<HistogramBin> result(count);
  const double ratio = std::log(engine::QuantileSketch::bound(1));
  const auto bound = [&](std::size_t bin) {
    return std::exp(ratio * (low - 1 + span * static_cast<double>(bin) / static_cast<double>(count)));
  };
  for (std::size_t bin = 0; bin < count; ++bin) result[bin] = {bound(bin), bound(bin + 1), 0};
  for (const auto& [bucket, number] : buckets) {
    const double share = (static_cast<double>(bucket - low) + 0.5) / span;
    result[std::min(static_cast<std::size_t>(share * static_cast<double>(count)), count - 1)].count += number;
  }
  return result;
}

std::string bars_of(const std::vector<HistogramBin>& bins, const Terminal& terminal) {
  std::vector<double> counts;
  for (const HistogramBin& bin : bins) counts.push_back(static_cast<double>(bin.count));
  return top::sparkline_of(counts, static_cast<int>(counts.size()),
                           terminal.unicode ? top::Charset::utf8 : top::Charset::ascii);
}

}  // namespace wflow::cli
