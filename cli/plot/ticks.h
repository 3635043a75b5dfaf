// SPDX-License-Identifier: Apache-2.0
// Where an axis has its labels, and what they say. The page's script has the same rules
// (cli/report/page/axes.js).
#pragma once

#include <string>
#include <vector>

#include "cli/plot/figure.h"

namespace wflow::cli::plot {

struct Tick {
  double value = 0;
  std::string label;
};

// About `wanted` ticks at round values in low..high.
std::vector<Tick> ticks(Scale scale, double low, double high, int wanted);

struct Extent {
  double low = 0, high = 1;
};

// What the two axes of a figure span: its data, widened to whole ticks of a linear axis, or what it asks for.
Extent x_extent(const Figure& figure);
Extent y_extent(const Figure& figure);

}  // namespace wflow::cli::plot
