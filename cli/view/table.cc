// SPDX-License-Identifier: Apache-2.0
#include "cli/view/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/csv.h"

namespace wflow::cli {

void Table::print(const Terminal& terminal) const {
  std::vector<int> widths;
  for (const std::string& heading : headings_) widths.push_back(columns_of(heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i].text));
  }
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t i = 0; i < headings_.size(); ++i) {
      const Cell cell = cell_of(i);
      // The last column is not padded: no blanks at the end of a line.
      const bool last = i + 1 == headings_.size();
      text += styled(terminal, cell.style, last ? cell.text : fitted(cell.text, widths[i], true)) +
              (last ? "" : "  ");
    }
    if (terminal.interactive) text = fitted(text, terminal.width, false);
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  };
  line([&](std::size_t i) { return Cell{headings_[i], Style::dim}; });
  for (const auto& row : rows_) line([&](std::size_t i) { return row[i]; });
}

void Table::print_csv_row(const std::vector<Cell>& row) {
  for (std::size_t i = 0; i < row.size(); ++i) fmt::print("{}{}", i > 0 ? "," : "", csv::cell(row[i].text));
  fmt::print("\n");
}

void Table::print_csv() const {
  for (std::size_t i = 0; i < headings_.size(); ++i)
    fmt::print("{}{}", i > 0 ? "," : "", csv::cell(headings_[i]));
  fmt::print("\n");
  for (const auto& row : rows_) print_csv_row(row);
}

}  // namespace wflow::cli
