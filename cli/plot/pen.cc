// SPDX-License-Identifier: Apache-2.0
#include "cli/plot/draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace wflow::cli::plot {

namespace {

struct Colour {
  double red, green, blue;
};

constexpr Colour colour(unsigned rgb) {
  return {static_cast<double>(rgb >> 16U & 255U) / 255, static_cast<double>(rgb >> 8U & 255U) / 255,
          static_cast<double>(rgb & 255U) / 255};
}

constexpr std::array<Colour, 8> kColours = {colour(0x0072b2), colour(0xd55e00), colour(0x009e73),
                                            colour(0xcc79a7), colour(0xe69f00), colour(0x56b4e9),
                                            colour(0x5a5a5a), colour(0x7a5cc0)};

const std::array<std::vector<double>, 6> kDashes = {{{}, {7, 3}, {2, 2}, {9, 3, 2, 3}, {4, 2}, {12, 4}}};

bool continues_letter(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

}  // namespace

void Pen::series_colour(std::size_t series, double opacity) {
  const Colour& shade = kColours[series % kColours.size()];
  cairo_set_source_rgba(cairo_, shade.red, shade.green, shade.blue, opacity);
}

void Pen::grey(double shade, double opacity) {
  cairo_set_source_rgba(cairo_, shade, shade, shade, opacity);
}

void Pen::rectangle(double x, double y, double width, double height) {
  cairo_rectangle(cairo_, x, y, width, height);
  cairo_fill(cairo_);
}

void Pen::line(double x1, double y1, double x2, double y2, double width) {
  cairo_set_line_width(cairo_, width);
  cairo_move_to(cairo_, x1, y1);
  cairo_line_to(cairo_, x2, y2);
  cairo_stroke(cairo_);
}

void Pen::dash(std::size_t series) {
  const std::vector<double>& pattern = kDashes[series % kDashes.size()];
  cairo_set_dash(cairo_, pattern.data(), static_cast<int>(pattern.size()), 0);
}

void Pen::no_dash() {
  cairo_set_dash(cairo_, nullptr, 0, 0);
}

void Pen::mark(std::size_t series, double x, double y, double radius) {
  constexpr std::size_t kShapes = 6;
  const auto polygon = [&](int corners, double turn, double size) {
    for (int i = 0; i < corners; ++i) {
      const double angle = turn + 2 * std::numbers::pi * i / corners;
      cairo_line_to(cairo_, x + size * std::cos(angle), y + size * std::sin(angle));
    }
    cairo_close_path(cairo_);
    cairo_fill(cairo_);
  };
  const auto cross = [&](double turn) {
    cairo_set_line_width(cairo_, 1.4);
    for (int i = 0; i < 2; ++i) {
      const double angle = turn + std::numbers::pi / 2 * i;
      cairo_move_to(cairo_, x - radius * std::cos(angle), y - radius * std::sin(angle));
      cairo_line_to(cairo_, x + radius * std::cos(angle), y + radius * std::sin(angle));
    }
    cairo_stroke(cairo_);
  };
  cairo_new_path(cairo_);
  switch (series % kShapes) {
    case 0:
      cairo_arc(cairo_, x, y, radius, 0, 2 * std::numbers::pi);
      cairo_fill(cairo_);
      break;
    case 1:
      cross(std::numbers::pi / 4);
      break;
    case 2:
      polygon(3, -std::numbers::pi / 2, radius * 1.25);
      break;
    case 3:
      polygon(4, std::numbers::pi / 4, radius * 1.2);
      break;
    case 4:
      cross(0);
      break;
    default:
      polygon(4, 0, radius * 1.3);
      break;
  }
}

void Pen::hatch(std::size_t series, double x, double y, double width, double height) {
  if (series == 0) return;
  cairo_save(cairo_);
  cairo_rectangle(cairo_, x, y, width, height);
  cairo_clip(cairo_);
  grey(1, 0.55);
  constexpr double kGap = 6;
  for (double offset = -height; offset < width; offset += kGap) {
    if (series % 3 == 1) line(x + offset, y + height, x + offset + height, y);
    if (series % 3 == 2) line(x + offset, y, x + offset + height, y + height);
    if (series % 3 == 0 && offset >= 0) line(x + offset, y, x + offset, y + height);
  }
  cairo_restore(cairo_);
}

void Pen::font(double size, bool bold) {
  cairo_select_font_face(cairo_, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(cairo_, size);
}

void Pen::text(const std::string& text, double x, double y, Align align, double size, bool bold) {
  const double width = text_width(text, size, bold);
  const double left = align == Align::left ? x : align == Align::centre ? x - width / 2 : x - width;
  cairo_move_to(cairo_, left, y + size * 0.35);
  cairo_show_text(cairo_, text.c_str());
}

void Pen::text_upwards(const std::string& written, double x, double y, double size) {
  cairo_save(cairo_);
  cairo_translate(cairo_, x, y);
  cairo_rotate(cairo_, -std::numbers::pi / 2);
  text(written, 0, 0, Align::centre, size);
  cairo_restore(cairo_);
}

double Pen::text_width(const std::string& text, double size, bool bold) {
  font(size, bold);
  cairo_text_extents_t extents;
  cairo_text_extents(cairo_, text.c_str(), &extents);
  return extents.x_advance;
}

std::string Pen::cut(const std::string& text, double width, double size) {
  if (text_width(text, size) <= width) return text;
  std::string shorter = text;
  while (!shorter.empty() && text_width(shorter + "…", size) > width) {
    while (shorter.size() > 1 && continues_letter(shorter.back())) shorter.pop_back();
    shorter.pop_back();
  }
  return shorter + "…";
}

}  // namespace wflow::cli::plot

#ifdef WFLOW_ADDRESS_SANITIZER
// fontconfig, which cairo uses to find fonts, does not free its memory.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libfontconfig\n";
}
#endif
