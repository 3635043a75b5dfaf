// SPDX-License-Identifier: Apache-2.0
// Distributions of a data set's values, from what its blocks recorded: no sample is read.
#pragma once

#include <filesystem>
#include <vector>

#include "converters/convert/sketch.h"

namespace wflow::converters {

// Of each field, one a channel, over all blocks; empty where a data set has no block records (imported,
// merged).
std::vector<std::vector<Sketch>> merged_sketches(const std::filesystem::path& data, std::size_t fields);

// Counts between `least` and `most` in bins of equal width; empty unless least < most.
std::vector<double> histogram_counts(const Sketch& sketch, double least, double most, std::size_t bins);

}  // namespace wflow::converters
