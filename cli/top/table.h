// SPDX-License-Identifier: Apache-2.0
// A table in cells of a grid: columns of little importance go first where the width does not hold all.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/top/grid.h"

namespace wflow::cli::top {

struct GridText {
  std::string text;
  Ink ink = Ink::plain;
};

struct GridColumn {
  std::string head;
  int priority = 0;  // the greatest goes first
  bool right = false;
  std::vector<GridText> cells;
  // Drawn by this instead (a bar): it gets the columns that are left over, `least` to `most`.
  std::function<void(Grid&, int row, std::size_t entry, int column, int columns)> draw = {};
  int least = 0, most = 0;
};

struct GridTable {
  std::vector<GridColumn> columns;  // all of the same length
  std::size_t entries = 0;
  std::size_t selected = static_cast<std::size_t>(-1);
};

// The first of `count` entries to be shown in `rows` rows, so that `selected` is among them.
std::size_t first_shown(std::size_t count, std::size_t selected, int rows);

// Heads in row `row`, entries below it, in at most `rows` rows in all. Gives the rows used.
int put_table(Grid& grid, int row, int rows, const GridTable& table);

}  // namespace wflow::cli::top
