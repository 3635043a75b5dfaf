// SPDX-License-Identifier: Apache-2.0
// Axes of plots, for every renderer in C++: figures drawn by cairo and plots in character cells
// (cli/top/chart.h). The page of `wflow report` gets its ticks from here, too (figure.h). Pure and light: no
// figure, no drawing.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace wflow::cli::plot {

enum class Scale : std::uint8_t {
  linear,
  logarithmic,  // only positive numbers are drawn
  elapsed,      // seconds, labelled as durations: 0, 30 s, 1 min, 2 h
  bytes,        // labelled in KiB, MiB, GiB
};

// The least and the greatest of some values.
struct Bounds {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  // Ignores values that are not finite, and on a logarithmic scale those up to 0.
  void add(double value, Scale scale = Scale::linear);
  bool empty() const { return !(low <= high); }
  // True if all values are positive and span more than a factor of 30: a logarithmic axis shows them better.
  bool spans_decades() const;
};

// The range of an axis.
struct Extent {
  double low = 0, high = 1;
  // The position of a value on the axis: 0 at `low`, 1 at `high`.
  double share(Scale scale, double value) const;
};

struct Tick {
  double value = 0;
  std::string label;
};

// About `wanted` ticks at round values in low..high.
std::vector<Tick> ticks(Scale scale, double low, double high, int wanted);

}  // namespace wflow::cli::plot
