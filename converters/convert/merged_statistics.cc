// SPDX-License-Identifier: Apache-2.0
#include "converters/convert/merged_statistics.h"

#include <algorithm>

namespace wflow::converters {

namespace {

// The levels that a manifest has: all percentiles where a normalisation goes by them.
std::vector<double> quantile_levels(const Normalisation& normalisation) {
  if (normalisation.kind != "quantile") return {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};
  std::vector<double> levels;
  for (int percent = 0; percent <= 100; ++percent) levels.push_back(percent / 100.0);
  return levels;
}

}  // namespace

void MergedStatistics::add(const BlockRecord& record, std::size_t field) {
  if (field < record.moments.size()) merge(moments, record.moments[field]);
  if (field >= record.sketches.size()) return;
  sketches.resize(std::max(sketches.size(), record.sketches[field].size()));
  for (std::size_t c = 0; c < record.sketches[field].size(); ++c)
    sketches[c].add(record.sketches[field][c].counts());
}

std::vector<ChannelStatistics> MergedStatistics::summaries(const Normalisation& normalisation,
                                                           std::size_t channels) const {
  std::vector<ChannelStatistics> result;
  for (const Moments& m : moments) result.push_back(summary(m));
  result.resize(channels);
  for (std::size_t c = 0; c < std::min(sketches.size(), channels); ++c) {
    if (sketches[c].total() == 0) continue;
    for (const double level : quantile_levels(normalisation))
      result[c].quantiles.emplace_back(level, sketches[c].quantile(level, result[c].min, result[c].max));
  }
  return result;
}

}  // namespace wflow::converters
