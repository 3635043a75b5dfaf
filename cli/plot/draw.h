// SPDX-License-Identifier: Apache-2.0
// Draws a figure with cairo: on white, for print, in eight colours that differ for colour-blind readers too
// (Okabe and Ito 2008), with a mark and a dash a series, so that it is readable in grey.
#pragma once

#include <cairo/cairo.h>

#include <cstddef>
#include <string>

#include "cli/plot/figure.h"

namespace wflow::cli::plot {

enum class Align : unsigned char { left, centre, right };

class Pen {
 public:
  explicit Pen(cairo_t* cairo) : cairo_(cairo) {}
  cairo_t* cairo() const { return cairo_; }

  void series_colour(std::size_t series, double opacity = 1);
  void grey(double shade, double opacity = 1);
  void rectangle(double x, double y, double width, double height);  // filled
  void line(double x1, double y1, double x2, double y2, double width = 1);
  // Sets the dash of the next stroke, a different one for each series; series 0 is unbroken.
  void dash(std::size_t series);
  void no_dash();
  // A closed or open mark of the series, `radius` points around its middle.
  void mark(std::size_t series, double x, double y, double radius);
  // Draws lines across a filled area, in a different direction for each series.
  void hatch(std::size_t series, double x, double y, double width, double height);

  // `y` is the middle of the letters.
  void text(const std::string& text, double x, double y, Align align, double size = 11, bool bold = false);
  void text_upwards(const std::string& text, double x, double y, double size = 11);
  double text_width(const std::string& text, double size = 11, bool bold = false);
  // The text, cut with "…" if it is wider.
  std::string cut(const std::string& text, double width, double size = 11);

 private:
  void font(double size, bool bold);
  cairo_t* cairo_;
};

// Fills width × height points of the surface.
void draw(cairo_t* cairo, const Figure& figure, double width, double height);

}  // namespace wflow::cli::plot
