// SPDX-License-Identifier: Apache-2.0
// Rows with a heading: aligned for people, RFC 4180 for programs.
#pragma once

#include <string>
#include <vector>

#include "cli/view/terminal.h"

namespace wflow::cli {

struct Cell {
  std::string text;
  Style style = Style::plain;
};

class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // On a terminal lines are cut to its width.
  void print(const Terminal& terminal) const;
  std::vector<std::string> lines(const Terminal& terminal) const;
  // On a terminal that is too narrow for it each row becomes a few lines: its first cell, then the others
  // behind their headings. Nothing is cut.
  void print_whole(const Terminal& terminal) const;
  void print_csv() const;
  static void print_csv_row(const std::vector<Cell>& row);
  void clear() { rows_.clear(); }

 private:
  std::vector<int> widths() const;
  void print_lines_of(const std::vector<Cell>& row, const Terminal& terminal) const;

  std::vector<std::string> headings_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace wflow::cli
