// SPDX-License-Identifier: Apache-2.0
#include "cli/top/chart.h"

#include <algorithm>

namespace wflow::cli::top {

namespace {

constexpr int kMargin = 1;  // left margin: the sign of the selected row
constexpr int kGap = 2;
constexpr int kLeastShrunk = 16;
constexpr int kLeastFirst = 8;  // the first column is cut, never left out

int natural_width(const GridColumn& column, std::size_t first, std::size_t count) {
  if (column.draw) return column.least;
  int width = width_of(column.head);
  for (std::size_t i = first; i < std::min(first + count, column.cells.size()); ++i)
    width = std::max(width, width_of(column.cells[i].text));
  return width;
}

struct Placed {
  const GridColumn* column;
  int width;
};

int total_width(const std::vector<Placed>& placed) {
  int total = kMargin;
  for (const Placed& column : placed) total += column.width + kGap;
  return total - kGap;
}

std::vector<Placed> place_columns(const GridTable& table, int width, std::size_t first, std::size_t count) {
  std::vector<Placed> placed;
  for (const GridColumn& column : table.columns)
    placed.push_back({&column, natural_width(column, first, count)});
  while (placed.size() > 1 && total_width(placed) > width) {
    // Shorten the first column as far as possible before another one is left out.
    const int excess = total_width(placed) - width;
    const auto worst =
        std::ranges::max_element(placed, {}, [](const Placed& p) { return p.column->priority; });
    if (worst->column->priority == 0 || excess <= placed.front().width - 2 * kLeastFirst) {
      placed.front().width = std::max(kLeastFirst, placed.front().width - excess);
      break;
    }
    if (worst->column->shrinks && worst->width - excess >= kLeastShrunk) {
      worst->width -= excess;
      break;
    }
    placed.erase(worst);
  }
  const int left = width - total_width(placed);
  for (Placed& column : placed) {
    if (column.column->draw && left > 0) column.width = std::min(column.width + left, column.column->most);
  }
  return placed;
}

}  // namespace

std::size_t first_shown(std::size_t count, std::size_t selected, int rows) {
  const auto shown = static_cast<std::size_t>(std::max(rows, 1));
  if (count <= shown || selected >= count) return 0;
  const std::size_t middle = shown / 2;
  return std::min(selected > middle ? selected - middle : 0, count - shown);
}

int put_table(Grid& grid, int row, int rows, const GridTable& table) {
  if (rows < 2) return 0;
  const std::size_t first = first_shown(table.entries, table.selected, rows - 1);
  const std::size_t count = std::min(table.entries - first, static_cast<std::size_t>(rows - 1));
  const auto placed = place_columns(table, grid.width(), first, count);
  int column = kMargin;
  for (const auto& [definition, width] : placed) {
    const std::string head = cut_to_width(definition->head, width, grid.charset());
    definition->right ? grid.put_right(row, column + width, head, Ink::dim)
                      : void(grid.put(row, column, head, Ink::dim));
    for (std::size_t i = 0; i < count; ++i) {
      const int at = row + 1 + static_cast<int>(i);
      if (definition->draw) {
        definition->draw(grid, at, first + i, column, width);
        continue;
      }
      const GridText& cell = definition->cells[first + i];
      const std::string text = definition == placed.front().column
                                   ? cut_left(cell.text, width, grid.charset())
                                   : cut_to_width(cell.text, width, grid.charset());
      definition->right ? grid.put_right(at, column + width, text, cell.ink)
                        : void(grid.put(at, column, text, cell.ink));
    }
    column += width + kGap;
  }
  if (table.selected >= first && table.selected < first + count)
    grid.put(row + 1 + static_cast<int>(table.selected - first), 0, ">", Ink::accent);
  return 1 + static_cast<int>(count);
}

}  // namespace wflow::cli::top
