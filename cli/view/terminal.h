// SPDX-License-Identifier: Apache-2.0
// Standard output of `wflow`, for every command. On a terminal, texts of others (names of metrics and
// workers, cells of samples, output of tasks) must not act on it: only this program's own escape sequences
// do. They carry a secret mark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wflow::cli {

// From now on, `stdout` makes control characters visible (base/printable.h) if it is a terminal. Otherwise
// nothing changes.
void open_output();

// Restores `stdout`: for --raw, and for code that draws on the terminal with a library of its own.
void open_raw_output();

// An escape sequence of this program: own_escape("31m"), own_escape("K").
std::string own_escape(std::string_view code);

// Makes a text visible that comes in pieces, as `stdout` does. Escape sequences with `mark` pass.
class VisibleText {
 public:
  explicit VisibleText(std::string mark) : mark_(std::move(mark)) {}
  const std::string& mark() const { return mark_; }
  // Returns the visible form of the text so far. The last bytes may be kept until more arrive.
  std::string take(std::string_view bytes);

 private:
  std::string mark_;  // follows "\x1b[" in own sequences
  std::string kept_;
};

// ---- the terminal, and text shaped for it

struct Terminal {
  bool interactive = false;  // a terminal that can move its cursor
  bool colour = false;       // interactive, and NO_COLOR is not set
  bool unicode = false;      // its locale is UTF-8
  bool reflows = true;       // breaks lines anew when its width changes, as most do
  int width = 80;            // columns
  int height = 24;           // lines
};
Terminal standard_output();

enum class Style { plain, bold, dim, red, green, yellow, cyan };
std::string styled(const Terminal& terminal, Style style, std::string_view text);

// Columns that a UTF-8 text takes; escape sequences take none.
int columns_of(std::string_view text);
// The text cut to this number of columns, with whole escape sequences. `pad`: adds blanks to a shorter one.
std::string fitted(std::string_view text, int columns, bool pad);
// The text as lines of at most this number of columns, broken at blanks, and inside words that are too long.
// All lines except the first begin with `indent` blanks.
std::vector<std::string> wrapped(std::string_view text, int columns, int indent);

// "[######----]" or its block-character form.
std::string bar(const Terminal& terminal, double fraction, int columns);
// A small curve of the last `columns` values, one column per value, scaled from the least to the greatest.
std::string sparkline(const Terminal& terminal, const std::vector<double>& values, int columns);

// ---- table.cc: rows with a heading, aligned for reading or RFC 4180 for programs

struct Cell {
  std::string text;
  Style style = Style::plain;
};

class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // Cuts lines to the width of a terminal.
  void print(const Terminal& terminal) const;
  std::vector<std::string> lines(const Terminal& terminal) const;
  // On a terminal that is too narrow, each row becomes a few lines: its first cell, then the others
  // after their headings. No text is cut.
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
