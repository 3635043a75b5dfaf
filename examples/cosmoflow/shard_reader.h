// SPDX-License-Identifier: Apache-2.0
// Reads training shards as any user would: DATA/<split>/shard-*.h5 with /x (sample, channel, z, y, x) of any
// number type, /y (sample, label) with the string array attribute `names`, /id (sample).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cola {

struct Shape {
  int channels = 0, depth = 0, height = 0, width = 0;
  std::size_t cells() const { return static_cast<std::size_t>(depth) * height * width; }
  std::size_t size() const { return cells() * channels; }
  bool operator==(const Shape&) const = default;
};

struct Split {
  Shape shape;
  std::vector<std::string> labels;
  std::vector<std::int64_t> ids;
  std::vector<double> targets;  // sample by sample, labels.size() each
};

// Calls visit(sample, shape, values) for each sample of a split in the order of file names and rows, one
// sample in memory at a time. Throws Error (input) on what is missing or does not agree.
using Visit = std::function<void(std::size_t sample, const Shape& shape, std::span<const float> values)>;
Split read_split(const std::string& folder, const Visit& visit);

}  // namespace cola
