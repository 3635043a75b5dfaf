// SPDX-License-Identifier: Apache-2.0
// A distribution as a few bars, on a logarithmic axis: durations and sizes span orders of magnitude.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/usage/quantile_sketch.h"

namespace wflow::cli {

struct HistogramBin {
  double from = 0, to = 0;  // values v with from < v <= to, in the values' unit
  std::uint64_t count = 0;
};

// At most `bins` bins of equal ratio that cover all positive values, at least a factor of two in all; values
// of 0 are in none. Empty without positive values.
std::vector<HistogramBin> histogram(const engine::QuantileSketch& sketch, std::size_t bins);

// One column a bin, as high as its share of the fullest one; ASCII where the terminal is not UTF-8.
std::string bars_of(const std::vector<HistogramBin>& bins, const Terminal& terminal);

}  // namespace wflow::cli
