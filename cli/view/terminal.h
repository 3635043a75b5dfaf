// SPDX-License-Identifier: Apache-2.0
// What `wflow` prints: the terminal, and text shaped for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace wflow::cli {

struct Terminal {
  bool interactive = false;  // a terminal that can move its cursor
  bool colour = false;       // interactive, and NO_COLOR is not set
  bool unicode = false;      // its locale is UTF-8
  bool reflows = true;       // breaks lines anew when its width changes, as most do
  int width = 80;            // columns
  int height = 24;           // lines
};
Terminal standard_output();
Terminal standard_error();

enum class Style { plain, bold, dim, red, green, yellow, cyan };
std::string styled(const Terminal& terminal, Style style, std::string_view text);

// Columns that a UTF-8 text takes; escape sequences take none.
int columns_of(std::string_view text);
// The text cut to this number of columns, with whole escape sequences. `pad`: adds blanks to a shorter one.
std::string fitted(std::string_view text, int columns, bool pad);
// The text in at most this number of columns: cut at a blank where one is near, and "…" or "~" says so.
std::string shortened(const Terminal& terminal, std::string_view text, int columns);
// A name without its beginning, if it is longer: the ends of names differ.
std::string shortened_name(const Terminal& terminal, std::string_view name, int columns);
// The text as lines of at most this number of columns, broken at blanks. A word that is longer than a line is
// broken after a '/' or another sign between words, or with `kept` goes beyond the line: one can copy it. All
// lines except the first begin with `indent` blanks.
enum class LongWords { broken, kept };
std::vector<std::string> wrapped(std::string_view text, int columns, int indent,
                                 LongWords words = LongWords::broken);

// The parts after `line`: `first` comes before the first one, `between` before each of the others. On a
// terminal, a part that does not fit begins a line with `indent` blanks.
std::vector<std::string> flowed(const Terminal& terminal, std::string line,
                                const std::vector<std::string>& parts, std::string_view first,
                                std::string_view between, int indent);

// A small curve of the last `columns` values, one column per value, from the least to the greatest on a
// logarithmic axis. On a linear one if a value is not positive.
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
  // Cuts lines to the width of a terminal, so that each row stays one line.
  void print(const Terminal& terminal) const;
  std::vector<std::string> lines(const Terminal& terminal) const;
  // On a terminal that is too narrow, each row becomes a few lines: its first cell, then the others
  // after their headings. No text is cut.
  void print_whole(const Terminal& terminal) const;
  std::vector<std::string> whole_lines(const Terminal& terminal) const;
  void print_csv() const;
  static void print_csv_row(const std::vector<Cell>& row);
  void clear() { rows_.clear(); }

 private:
  std::vector<int> widths() const;
  void add_lines_of(const std::vector<Cell>& row, const Terminal& terminal,
                    std::vector<std::string>& lines) const;

  std::vector<std::string> headings_;
  std::vector<std::vector<Cell>> rows_;
};

// True if a command can ask: standard input and output are terminals, and `silent` is not set.
bool asks_people(bool silent);
// Prints the question, and returns the answer in lower case; empty for Enter and at the end of input.
std::string ask(const std::string& question);
// Adds [y/N], or [Y/n] if Enter means yes.
bool says_yes(const std::string& question, bool yes_is_usual = false);

}  // namespace wflow::cli
