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
  for (const std::string& line : whole_lines(terminal)) fmt::print("{}\n", line);
}

std::vector<std::string> Table::whole_lines(const Terminal& terminal) const {
  int needed = -kGap;
  for (const int width : widths()) needed += width + kGap;
  if (!terminal.interactive || needed <= terminal.width) return lines(terminal);
  std::vector<std::string> all;
  for (const auto& row : rows_) add_lines_of(row, terminal, all);
  return all;
}

void Table::add_lines_of(const std::vector<Cell>& row, const Terminal& terminal,
                         std::vector<std::string>& lines) const {
  const auto add = [&](const std::string& text) {
    for (std::string& line : wrapped(text, terminal.width, kGap)) lines.push_back(std::move(line));
  };
  // A number alone, as a rank, names no row.
  const bool numbered =
      row.size() > 1 && row.front().text.find_first_not_of("0123456789-") == std::string::npos;
  std::string line = styled(terminal, row.front().style, row.front().text);
  if (numbered) line += "  " + styled(terminal, row[1].style, row[1].text);
  add(std::exchange(line, {}));
  for (std::size_t i = numbered ? 2 : 1; i < row.size(); ++i) {
    if (row[i].text.empty()) continue;
    const std::string cell =
        styled(terminal, Style::dim, headings_[i]) + " " + styled(terminal, row[i].style, row[i].text);
    const bool full = !line.empty() && columns_of(line) + kGap + columns_of(cell) > terminal.width;
    if (full) add(std::exchange(line, {}));
    line += "  " + cell;
  }
  if (!line.empty()) add(line);
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
    if (terminal.interactive) text = shortened(terminal, text, terminal.width);
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
