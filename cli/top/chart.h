// SPDX-License-Identifier: Apache-2.0
// Bars, sparklines and curves in character cells.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/top/grid.h"

namespace wflow::cli::top {

// Shares of a whole, each with a sign of its own, so that they can be told apart without colours:
// "███▓▓x░░░".
struct Shares {
  double done = 0, assigned = 0, failed = 0, retrying = 0, waiting = 0;  // counts
};
void put_bar(Grid& grid, int row, int column, int columns, const Shares& shares);
// A plain bar of a fraction (0 to 1).
void put_fraction(Grid& grid, int row, int column, int columns, double fraction, Ink ink);

// The last `columns` values, one column each, from 0 to the greatest; values that are not finite are 0.
std::string sparkline_of(const std::vector<double>& values, int columns, Charset charset);

struct CurvePoint {
  double x = 0, y = 0;
};
struct PlottedCurve {
  std::vector<CurvePoint> points;  // x rising; points that are not finite are left out
  Ink ink = Ink::accent;
  char sign = '*';  // in ASCII
};
// Curves in a box of cells: y labels at the left, x labels below. In UTF-8 by braille patterns, 2 x 4 dots a
// cell. The y axis is logarithmic where all values are positive and span more than a factor of 30, or
// `logarithmic`.
void put_plot(Grid& grid, int row, int column, int columns, int rows,
              const std::vector<PlottedCurve>& curves, bool logarithmic = false);

}  // namespace wflow::cli::top
