// SPDX-License-Identifier: Apache-2.0
// Bars, sparklines, curves and tables in character cells.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/top/grid.h"
#include "cli/top/progress.h"

namespace wflow::cli::top {

void put_bar(Grid& grid, int row, int column, int columns, const Shares& shares);
// A plain bar of a fraction (0 to 1).
void put_fraction(Grid& grid, int row, int column, int columns, double fraction, Ink ink);

// The last `columns` values, one column each, scaled from 0 to the greatest. Non-finite values count as 0.
std::string sparkline_of(const std::vector<double>& values, int columns, Charset charset);

struct CurvePoint {
  double x = 0, y = 0;
};
struct PlottedCurve {
  std::vector<CurvePoint> points;  // x rising; points that are not finite are ignored
  Ink ink = Ink::accent;
  char sign = '*';  // in ASCII
};
// Curves in a box of cells: y labels at the left, x labels below. UTF-8 uses braille patterns, 2 x 4 dots per
// cell. The y axis is logarithmic if all values are positive and span more than a factor of 30, or if
// `logarithmic` is set.
void put_plot(Grid& grid, int row, int column, int columns, int rows, const std::vector<PlottedCurve>& curves,
              bool logarithmic = false);

// ---- table.cc: a table; columns of little importance go first where the width does not hold all

struct GridText {
  std::string text;
  Ink ink = Ink::plain;
};

struct GridColumn {
  std::string head;
  int priority = 0;  // the greatest is left out first
  bool right = false;
  bool shrinks = false;  // cut to what is left of the line, instead of left out, if that is enough to read
  std::vector<GridText> cells;
  // Draws the cell instead of a text (a bar), in the remaining columns, `least` to `most`.
  std::function<void(Grid&, int row, std::size_t entry, int column, int columns)> draw = {};
  int least = 0, most = 0;
};

struct GridTable {
  std::vector<GridColumn> columns;  // all with the same number of cells
  std::size_t entries = 0;
  std::size_t selected = static_cast<std::size_t>(-1);
};

// The first of `count` entries to show in `rows` rows, so that `selected` is visible.
std::size_t first_shown(std::size_t count, std::size_t selected, int rows);

// Puts the heads in row `row` and entries below, in at most `rows` rows in all. Returns the rows used.
int put_table(Grid& grid, int row, int rows, const GridTable& table);

}  // namespace wflow::cli::top
