// SPDX-License-Identifier: Apache-2.0
#include "cli/view/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/csv.h"

namespace wflow::cli {

namespace {

constexpr int kGap = 2;  // columns between two cells

}  // namespace

std::vector<int> Table::widths() const {
  std::vector<int> widths;
  for (const std::string& heading : headings_) widths.push_back(columns_of(heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i].text));
  }
  return widths;
}

void Table::print_whole(const Terminal& terminal) const {
  int needed = -kGap;
  for (const int width : widths()) needed += width + kGap;
  if (!terminal.interactive || needed <= terminal.width) return print(terminal);
  for (const auto& row : rows_) print_lines_of(row, terminal);
}

void Table::print_lines_of(const std::vector<Cell>& row, const Terminal& terminal) const {
  fmt::print("{}\n", styled(terminal, row.front().style, row.front().text));
  std::string line;
  for (std::size_t i = 1; i < row.size(); ++i) {
    if (row[i].text.empty()) continue;
    const std::string cell =
        styled(terminal, Style::dim, headings_[i]) + " " + styled(terminal, row[i].style, row[i].text);
    const bool full = !line.empty() && columns_of(line) + kGap + columns_of(cell) > terminal.width;
    if (full) fmt::print("{}\n", std::exchange(line, {}));
    line += "  " + cell;
  }
  if (!line.empty()) fmt::print("{}\n", line);
}

void Table::print(const Terminal& terminal) const {
  for (const std::string& line : lines(terminal)) fmt::print("{}\n", line);
}

std::vector<std::string> Table::lines(const Terminal& terminal) const {
  const std::vector<int> widths = this->widths();
  std::vector<std::string> all;
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t i = 0; i < headings_.size(); ++i) {
      const Cell cell = cell_of(i);
      // Do not pad the last column: lines have no blanks at their end.
      const bool last = i + 1 == headings_.size();
      text += styled(terminal, cell.style, last ? cell.text : fitted(cell.text, widths[i], true)) +
              (last ? "" : std::string(kGap, ' '));
    }
    if (terminal.interactive) text = fitted(text, terminal.width, false);
    text.erase(text.find_last_not_of(' ') + 1);
    all.push_back(std::move(text));
  };
  line([&](std::size_t i) { return Cell{headings_[i], Style::dim}; });
  for (const auto& row : rows_) line([&](std::size_t i) { return row[i]; });
  return all;
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
