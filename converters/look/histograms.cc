// SPDX-License-Identifier: Apache-2.0
#include "converters/look/histograms.h"

#include <algorithm>

#include "converters/convert/block_record.h"

namespace wflow::converters {

std::vector<std::vector<Sketch>> merged_sketches(const std::filesystem::path& data, std::size_t fields) {
  std::vector<std::vector<Sketch>> merged(fields);
  for (std::uint64_t block = 0;; ++block) {
    const auto record = read_block_record(data, block);
    if (!record) return merged;
    for (std::size_t k = 0; k < std::min(fields, record->sketches.size()); ++k) {
      merged[k].resize(std::max(merged[k].size(), record->sketches[k].size()));
      for (std::size_t c = 0; c < record->sketches[k].size(); ++c)
        merged[k][c].add(record->sketches[k][c].counts());
    }
  }
}

std::vector<double> histogram_counts(const Sketch& sketch, double least, double most, std::size_t bins) {
  if (!(most > least)) return {};
  std::vector<double> counts(bins);
  for (const auto& [bucket, count] : sketch.counts()) {
    const auto [from, to] = bucket_edges(bucket);
    // A bucket's values are spread evenly over the bins that it touches.
    const double low = std::max(from, least);
    const double high = std::min(to, most);
    if (high < low) continue;
    const double scale = static_cast<double>(bins) / (most - least);
    const auto bin = [&](double value) {
      return std::min(bins - 1, static_cast<std::size_t>((value - least) * scale));
    };
    const std::size_t first = bin(low);
    const std::size_t last = bin(high);
    for (std::size_t k = first; k <= last; ++k)
      counts[k] += static_cast<double>(count) / static_cast<double>(last - first + 1);
  }
  return counts;
}

}  // namespace wflow::converters
