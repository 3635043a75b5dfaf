// SPDX-License-Identifier: Apache-2.0
// A screen of character cells as a value: the dashboard draws into one, tests read it, and the terminal
// gets only the cells that differ from the grid before. The only file that knows the widths of characters
// (utf8proc).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::cli::top {

enum class Charset : std::uint8_t { ascii, utf8 };

// The purpose of a text; `screen` gives it a colour, or on a monochrome terminal an attribute.
enum class Ink : std::uint8_t { plain, dim, bold, good, bad, warning, accent, second, title, selected };
inline constexpr std::size_t kInks = 10;

// Columns of a text on the screen: 2 for wide characters, 0 for combining ones. Bytes that are not UTF-8
// count as one each.
int width_of(std::string_view text);
// The text cut to this number of columns; "~" or "…" ends a text that was cut.
std::string cut_to_width(std::string_view text, int columns, Charset charset);

// The same, cut at its beginning: the ends of names differ.
std::string cut_left(std::string_view text, int columns, Charset charset);

struct Cell {
  std::string text = " ";  // one character with its combining ones; empty: the second half of a wide one
  Ink ink = Ink::plain;
  bool operator==(const Cell&) const = default;
};

class Grid {
 public:
  static constexpr int kWhole = std::numeric_limits<int>::max();

  Grid() = default;
  Grid(int width, int height, Charset charset = Charset::utf8);

  int width() const { return width_; }
  int height() const { return height_; }
  Charset charset() const { return charset_; }
  const Cell& at(int row, int column) const;

  // Writes into one row from `column` on, at most `most` columns; text outside the grid is left out.
  // Control characters become blanks, and in ASCII all other characters become "?". Returns the column after
  // the text.
  int put(int row, int column, std::string_view text, Ink ink = Ink::plain, int most = kWhole);
  // Like put(), but ends at the column before `end`.
  void put_right(int row, int end, std::string_view text, Ink ink = Ink::plain);

  // One row as text without trailing blanks, and all of them.
  std::string line(int row) const;
  std::string text() const;

 private:
  Cell& cell(int row, int column);

  int width_ = 0, height_ = 0;
  Charset charset_ = Charset::utf8;
  std::vector<Cell> cells_;
};

}  // namespace wflow::cli::top
