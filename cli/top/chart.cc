// SPDX-License-Identifier: Apache-2.0
#include "cli/top/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/plot/figure.h"

namespace wflow::cli::top {

namespace {

constexpr int kLabelColumns = 9;

// A character of three bytes for a code point from U+0800 to U+FFFF.
std::string utf8_of(unsigned code) {
  return {static_cast<char>(0xe0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

// The ranges of the axes.
struct Axes {
  plot::Bounds x, y;
  plot::Scale scale = plot::Scale::linear;  // the scale of y
  double height(double value) const {
    return y.high > y.low ? plot::Extent{y.low, y.high}.share(scale, value) : 0.5;
  }
  double place(double value) const {
    return x.high > x.low ? plot::Extent{x.low, x.high}.share(plot::Scale::linear, value) : 0;
  }
};

bool is_finite(const CurvePoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

Axes axes_of(const std::vector<PlottedCurve>& curves, bool logarithmic) {
  Axes axes;
  for (const PlottedCurve& curve : curves) {
    for (const CurvePoint& point : curve.points) {
      if (!is_finite(point)) continue;
      axes.x.add(point.x);
      axes.y.add(point.y);
    }
  }
  const bool positive = !axes.y.empty() && axes.y.low > 0;
  if (positive && (logarithmic || axes.y.spans_decades())) axes.scale = plot::Scale::logarithmic;
  return axes;
}

// Dots of a plot, `wide` by `high`, the first row on top.
class Dots {
 public:
  Dots(int wide, int high)
      : wide_(wide), high_(high), set_(static_cast<std::size_t>(wide) * static_cast<std::size_t>(high), -1) {}

  void line(int x0, int y0, int x1, int y1, int curve) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) set(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, curve);
  }
  // The curve of each dot; -1: none.
  int at(int x, int y) const { return set_[index(x, y)]; }

 private:
  std::size_t index(int x, int y) const {
    return static_cast<std::size_t>(y) * static_cast<std::size_t>(wide_) + static_cast<std::size_t>(x);
  }
  void set(int x, int y, int curve) {
    if (x >= 0 && x < wide_ && y >= 0 && y < high_) set_[index(x, y)] = curve;
  }

  int wide_, high_;
  std::vector<int> set_;
};

void draw(Dots& dots, const PlottedCurve& curve, int number, const Axes& axes, int wide, int high) {
  bool first = true;
  int x_before = 0, y_before = 0;
  for (const CurvePoint& point : curve.points) {
    if (!is_finite(point)) continue;
    const int x = static_cast<int>(std::lround(axes.place(point.x) * (wide - 1)));
    const int y = static_cast<int>(std::lround((1 - axes.height(point.y)) * (high - 1)));
    dots.line(first ? x : x_before, first ? y : y_before, x, y, number);
    first = false;
    x_before = x;
    y_before = y;
  }
}

void put_braille(Grid& grid, int row, int column, const Dots& dots, int columns, int rows,
                 const std::vector<PlottedCurve>& curves) {
  constexpr std::array<std::array<unsigned, 2>, 4> kBits = {
      {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      unsigned bits = 0;
      int curve = -1;
      for (std::size_t y = 0; y < 4; ++y) {
        for (std::size_t x = 0; x < 2; ++x) {
          const int at = dots.at(2 * c + static_cast<int>(x), 4 * r + static_cast<int>(y));
          if (at < 0) continue;
          bits |= kBits[y][x];
          curve = std::max(curve, at);
        }
      }
      if (curve >= 0)
        grid.put(row + r, column + c, utf8_of(0x2800 + bits), curves[static_cast<std::size_t>(curve)].ink);
    }
  }
}

void put_signs(Grid& grid, int row, int column, const Dots& dots, int columns, int rows,
               const std::vector<PlottedCurve>& curves) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      const int at = dots.at(c, r);
      if (at < 0) continue;
      const PlottedCurve& curve = curves[static_cast<std::size_t>(at)];
      grid.put(row + r, column + c, std::string_view(&curve.sign, 1), curve.ink);
    }
  }
}

}  // namespace

void put_bar(Grid& grid, int row, int column, int columns, const Shares& shares) {
  constexpr std::array<Ink, kParts> kColours = {Ink::good,   Ink::bad,     Ink::warning,
                                                Ink::accent, Ink::warning, Ink::dim};
  const auto cells = bar_cells(shares, columns);
  int at = column;
  for (std::size_t part = 0; part < kParts; ++part) {
    const char* sign = sign_of(static_cast<Part>(part), grid.charset() == Charset::utf8);
    for (int i = 0; i < cells[part]; ++i) grid.put(row, at++, sign, kColours[part]);
  }
}

void put_fraction(Grid& grid, int row, int column, int columns, double fraction, Ink ink) {
  const bool blocks = grid.charset() == Charset::utf8;
  fraction = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0;
  const int full = static_cast<int>(fraction * columns + 1e-9);
  for (int i = 0; i < columns; ++i) {
    grid.put(row, column + i, i < full ? (blocks ? "█" : "#") : (blocks ? "░" : "."),
             i < full ? ink : Ink::dim);
  }
}

std::string sparkline_of(const std::vector<double>& values, int columns, Charset charset) {
  if (columns <= 0 || values.empty()) return {};
  constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<const char*, 9> kAscii = {" ", "_", "_", ".", "-", "-", "=", "=", "#"};
  const std::size_t shown = std::min(values.size(), static_cast<std::size_t>(columns));
  const auto begin = values.end() - static_cast<std::ptrdiff_t>(shown);
  double most = 0;
  for (auto at = begin; at != values.end(); ++at) most = std::isfinite(*at) ? std::max(most, *at) : most;
  std::string result;
  for (auto at = begin; at != values.end(); ++at) {
    const double height = most > 0 && std::isfinite(*at) ? std::clamp(*at / most, 0.0, 1.0) : 0;
    // A small value is still visible.
    const auto level = height > 0 ? std::max(1L, std::lround(height * 8)) : 0L;
    result += (charset == Charset::utf8 ? kBlocks : kAscii)[static_cast<std::size_t>(level)];
  }
  return result;
}

void put_plot(Grid& grid, int row, int column, int columns, int rows, const std::vector<PlottedCurve>& curves,
              bool logarithmic) {
  const Axes axes = axes_of(curves, logarithmic);
  const int wide = columns - kLabelColumns - 1;
  const int high = rows - 1;
  if (axes.x.empty() || wide < 4 || high < 2) return;
  const bool braille = grid.charset() == Charset::utf8;
  const int across = braille ? 2 * wide : wide;
  const int down = braille ? 4 * high : high;
  Dots dots(across, down);
  for (std::size_t i = 0; i < curves.size(); ++i)
    draw(dots, curves[i], static_cast<int>(i), axes, across, down);
  const int left = column + kLabelColumns + 1;
  braille ? put_braille(grid, row, left, dots, wide, high, curves)
          : put_signs(grid, row, left, dots, wide, high, curves);
  for (int r = 0; r < high; ++r) grid.put(row + r, left - 1, braille ? "│" : "|", Ink::dim);
  const auto label = [&](int r, double value) {
    grid.put_right(row + r, left - 1, fmt::format("{:.3g}", value), Ink::dim);
  };
  label(0, axes.y.high);
  if (axes.y.high > axes.y.low) label(high - 1, axes.y.low);
  grid.put(row + high, left, fmt::format("{:g}", axes.x.low), Ink::dim);
  const std::string end =
      fmt::format("{:g}{}", axes.x.high, axes.scale == plot::Scale::logarithmic ? " log" : "");
  grid.put_right(row + high, left + wide, end, Ink::dim);
}

}  // namespace wflow::cli::top
