// SPDX-License-Identifier: Apache-2.0
#include "cli/top/grid.h"

#include <utf8proc.h>

#include <algorithm>

namespace wflow::cli::top {

namespace {

struct Character {
  std::string_view bytes;
  int width = 1;
  bool valid = true;
};

// The first character of a text that is not empty.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead >= 0x20 && lead < 0x7f) return {text.substr(0, 1), 1, true};
  utf8proc_int32_t code = -1;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                       static_cast<utf8proc_ssize_t>(text.size()), &code);
  if (length <= 0) return {text.substr(0, 1), 1, false};
  const auto bytes = text.substr(0, static_cast<std::size_t>(length));
  const auto category = utf8proc_category(code);
  if (category == UTF8PROC_CATEGORY_CC) return {bytes, 1, false};
  return {bytes, utf8proc_charwidth(code), true};
}

}  // namespace

int width_of(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Character next = first_character(text);
    columns += next.width;
    text.remove_prefix(next.bytes.size());
  }
  return columns;
}

std::string cut_to_width(std::string_view text, int columns, Charset charset) {
  if (columns <= 0) return {};
  if (width_of(text) <= columns) return std::string(text);
  std::string result;
  int used = 0;
  while (!text.empty()) {
    const Character next = first_character(text);
    if (used + next.width > columns - 1) break;
    result += next.bytes;
    used += next.width;
    text.remove_prefix(next.bytes.size());
  }
  return result + (charset == Charset::utf8 ? "…" : "~");
}

std::string cut_left(std::string_view text, int columns, Charset charset) {
  if (columns <= 0) return {};
  int width = width_of(text);
  if (width <= columns) return std::string(text);
  while (width > columns - 1) {
    const Character next = first_character(text);
    width -= next.width;
    text.remove_prefix(next.bytes.size());
  }
  return (charset == Charset::utf8 ? "…" : "~") + std::string(text);
}

Grid::Grid(int width, int height, Charset charset)
    : width_(std::max(width, 0)),
      height_(std::max(height, 0)),
      charset_(charset),
      cells_(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_)) {}

Cell& Grid::cell(int row, int column) {
  return cells_[static_cast<std::size_t>(row) * static_cast<std::size_t>(width_) +
                static_cast<std::size_t>(column)];
}

const Cell& Grid::at(int row, int column) const {
  return cells_[static_cast<std::size_t>(row) * static_cast<std::size_t>(width_) +
                static_cast<std::size_t>(column)];
}

int Grid::put(int row, int column, std::string_view text, Ink ink, int most) {
  if (row < 0 || row >= height_ || column < 0) return column;
  const int end = most > width_ - column ? width_ : column + most;
  while (!text.empty()) {
    const Character next = first_character(text);
    text.remove_prefix(next.bytes.size());
    std::string_view bytes = next.valid ? next.bytes : " ";
    int width = next.width;
    if (charset_ == Charset::ascii && (bytes.size() > 1 || static_cast<unsigned char>(bytes[0]) >= 0x7f)) {
      if (width == 0) continue;
      bytes = "?";
      width = 1;
    }
    if (width == 0) {
      if (column > 0 && column <= end) cell(row, column - 1).text += bytes;
      continue;
    }
    if (column + width > end) break;
    cell(row, column) = {std::string(bytes), ink};
    if (width == 2) cell(row, column + 1) = {"", ink};
    column += width;
  }
  return column;
}

void Grid::put_right(int row, int end, std::string_view text, Ink ink) {
  const int columns = width_of(text);
  put(row, std::max(end - columns, 0), text, ink);
}

std::string Grid::line(int row) const {
  std::string result;
  for (int column = 0; column < width_; ++column) result += at(row, column).text;
  result.erase(result.find_last_not_of(' ') + 1);
  return result;
}

std::string Grid::text() const {
  std::string result;
  for (int row = 0; row < height_; ++row) result += line(row) + "\n";
  return result;
}

}  // namespace wflow::cli::top
