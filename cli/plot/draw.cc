// SPDX-License-Identifier: Apache-2.0
#include "cli/plot/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "cli/plot/figure.h"

namespace wflow::cli::plot {

namespace {

constexpr double kTitleSize = 14;
constexpr double kTextSize = 11;
constexpr double kLegendRow = 17;

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

std::string axis_title(const Axis& axis) {
  return axis.unit.empty() ? axis.name : fmt::format("{} [{}]", axis.name, axis.unit);
}

// A figure with axes: maps its values to places on the surface.
class Frame {
 public:
  Frame(Pen& pen, const Figure& figure, double width, double height)
      : pen_(pen), figure_(figure), x_(x_extent(figure)), y_(y_extent(figure)) {
    box_ = {12, 34, width - 16, height - 44};
    box_.top += legend_rows(width) * kLegendRow;
    const int rows = std::max(2, static_cast<int>(box_.height() / 40));
    if (has_rows()) {
      double widest = 0;
      for (const std::string& name : figure.categories)
        widest = std::max(widest, pen.text_width(name, kTextSize));
      box_.left += std::min(widest, width * 0.35) + 8;
    } else {
      y_ticks_ = ticks(figure.y.scale, y_.low, y_.high, rows);
      double widest = 0;
      for (const Tick& tick : y_ticks_) widest = std::max(widest, pen.text_width(tick.label, kTextSize));
      box_.left += widest + 26;
    }
    x_ticks_ = ticks(figure.x.scale, x_.low, x_.high, std::max(2, static_cast<int>(box_.width() / 90)));
  }

  const Box& box() const { return box_; }
  double x(double value) const { return box_.left + x_.share(figure_.x.scale, value) * box_.width(); }
  double y(double value) const { return box_.bottom - y_.share(figure_.y.scale, value) * box_.height(); }
  bool drawn(double px, double py) const { return std::isfinite(px) && std::isfinite(py); }
  double row_top(std::size_t row) const {
    return box_.top +
           box_.height() * static_cast<double>(row) / static_cast<double>(figure_.categories.size());
  }
  double row_height() const { return box_.height() / static_cast<double>(figure_.categories.size()); }

  void draw_axes() {
    for (const Tick& tick : x_ticks_) {
      pen_.grey(0.88);
      pen_.line(x(tick.value), box_.top, x(tick.value), box_.bottom);
      pen_.grey(0.2);
      pen_.text(tick.label, x(tick.value), box_.bottom + 12, Align::centre, kTextSize);
    }
    for (const Tick& tick : y_ticks_) {
      pen_.grey(0.88);
      pen_.line(box_.left, y(tick.value), box_.right, y(tick.value));
      pen_.grey(0.2);
      pen_.text(tick.label, box_.left - 6, y(tick.value), Align::right, kTextSize);
    }
    if (has_rows()) draw_row_names();
    pen_.grey(0.35);
    pen_.line(box_.left, box_.bottom, box_.right, box_.bottom);
    pen_.line(box_.left, box_.top, box_.left, box_.bottom);
    pen_.grey(0.1);
    pen_.text(axis_title(figure_.x), box_.left + box_.width() / 2, box_.bottom + 30, Align::centre,
              kTextSize);
    if (!has_rows()) pen_.text_upwards(axis_title(figure_.y), 10, box_.top + box_.height() / 2, kTextSize);
  }

  void draw_references() {
    for (const Reference& line : figure_.references) {
      pen_.grey(0.25);
      pen_.dash(2);
      if (line.horizontal) {
        pen_.line(box_.left, y(line.value), box_.right, y(line.value));
      } else {
        pen_.line(x(line.value), box_.top, x(line.value), box_.bottom);
      }
      pen_.no_dash();
      if (line.horizontal) {
        pen_.text(line.text, box_.right - 4, y(line.value) - 8, Align::right, kTextSize);
      } else {
        const bool left = x(line.value) > box_.left + box_.width() / 2;
        pen_.text(line.text, x(line.value) + (left ? -5 : 5), box_.top + 9, left ? Align::right : Align::left,
                  kTextSize);
      }
    }
    if (!figure_.diagonal) return;
    const double low = std::max(x_.low, y_.low);
    const double high = std::min(x_.high, y_.high);
    pen_.grey(0.25);
    pen_.dash(1);
    pen_.line(x(low), y(low), x(high), y(high));
    pen_.no_dash();
  }

 private:
  bool has_rows() const { return figure_.kind == Kind::bars || figure_.kind == Kind::timeline; }

  void draw_row_names() {
    // If rows are narrower than letters, draw only some of the names.
    const auto every = static_cast<std::size_t>(std::ceil((kTextSize + 2) / row_height()));
    pen_.grey(0.2);
    for (std::size_t row = 0; row < figure_.categories.size(); row += every)
      pen_.text(pen_.cut(figure_.categories[row], box_.left - 20, kTextSize), box_.left - 6,
                row_top(row) + row_height() / 2, Align::right, kTextSize);
  }

  double legend_rows(double width) {
    if (figure_.series.size() < 2) return 0;
    double rows = 1;
    double x = 12;
    for (const Series& series : figure_.series) {
      const double wide = std::min(pen_.text_width(series.name, kTextSize), width / 2) + 44;
      if (x + wide > width && x > 12) {
        rows += 1;
        x = 12;
      }
      x += wide;
    }
    return rows;
  }

  Pen& pen_;
  const Figure& figure_;
  Extent x_, y_;
  Box box_;
  std::vector<Tick> x_ticks_, y_ticks_;
};

bool filled(Kind kind) {
  return kind == Kind::bars || kind == Kind::timeline || kind == Kind::histogram;
}

void draw_legend(Pen& pen, const Figure& figure, double width) {
  if (figure.series.size() < 2) return;
  double x = 12;
  double y = 36;
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const std::string name = pen.cut(figure.series[i].name, width / 2, kTextSize);
    const double wide = pen.text_width(name, kTextSize) + 44;
    if (x + wide > width && x > 12) {
      x = 12;
      y += kLegendRow;
    }
    pen.series_colour(i);
    if (filled(figure.kind)) {
      pen.rectangle(x, y - 5, 20, 10);
      pen.hatch(i, x, y - 5, 20, 10);
    } else {
      if (figure.kind == Kind::lines) {
        pen.dash(i);
        pen.line(x, y, x + 22, y, 1.8);
        pen.no_dash();
      }
      if (figure.kind == Kind::scatter || figure.series[i].marks) pen.mark(i, x + 11, y, 3.4);
    }
    pen.grey(0.1);
    pen.text(name, x + 27, y, Align::left, kTextSize);
    x += wide;
  }
}

void draw_lines(Pen& pen, const Figure& figure, const Frame& frame) {
  for (std::size_t s = 0; s < figure.series.size(); ++s) {
    const Series& series = figure.series[s];
    pen.series_colour(s);
    pen.dash(s);
    bool open = false;
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      const double x = frame.x(series.x[i]);
      const double y = frame.y(series.y[i]);
      if (!frame.drawn(x, y)) {
        open = false;
      } else if (!std::exchange(open, true)) {
        cairo_move_to(pen.cairo(), x, y);
      } else {
        cairo_line_to(pen.cairo(), x, y);
      }
    }
    cairo_set_line_width(pen.cairo(), 1.8);
    cairo_stroke(pen.cairo());
    pen.no_dash();
    // A line of a single point has no length, so draw a mark.
    if (!series.marks && series.x.size() > 1) continue;
    for (std::size_t i = 0; i < series.x.size(); ++i)
      if (const double x = frame.x(series.x[i]), y = frame.y(series.y[i]); frame.drawn(x, y))
        pen.mark(s, x, y, 3);
  }
}

void draw_scatter(Pen& pen, const Figure& figure, const Frame& frame) {
  for (std::size_t s = 0; s < figure.series.size(); ++s) {
    const Series& series = figure.series[s];
    const auto most = std::max_element(series.values.begin(), series.values.end());
    const double scale = most == series.values.end() || *most <= 0 ? 0 : 1 / *most;
    pen.series_colour(s, series.x.size() > 500 ? 0.55 : 0.85);
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      const double x = frame.x(series.x[i]);
      const double y = frame.y(series.y[i]);
      const double value = i < series.values.size() && scale > 0 ? series.values[i] * scale : 0.4;
      if (frame.drawn(x, y)) pen.mark(s, x, y, 1.5 + 3 * std::clamp(value, 0.0, 1.0));
    }
  }
}

void draw_histogram(Pen& pen, const Figure& figure, const Frame& frame) {
  for (std::size_t s = 0; s < figure.series.size(); ++s) {
    for (std::size_t i = 0; i < figure.series[s].y.size(); ++i) {
      const double left = frame.x(figure.edges[i]);
      const double right = frame.x(figure.edges[i + 1]);
      const double top = std::clamp(frame.y(figure.series[s].y[i]), frame.box().top, frame.box().bottom);
      pen.series_colour(s, figure.series.size() > 1 ? 0.6 : 0.9);
      if (std::isfinite(top) && frame.drawn(left, right))
        pen.rectangle(left, top, std::max(0.5, right - left - 0.5), frame.box().bottom - top);
    }
  }
}

void draw_bars(Pen& pen, const Figure& figure, const Frame& frame) {
  const double height = std::min(frame.row_height() * 0.7, 24.0);
  for (std::size_t i = 0; i < figure.categories.size(); ++i) {
    double from = 0;
    const double top = frame.row_top(i) + (frame.row_height() - height) / 2;
    for (std::size_t s = 0; s < figure.series.size(); ++s) {
      const double to = from + figure.series[s].y[i];
      pen.series_colour(s);
      pen.rectangle(frame.x(from), top, frame.x(to) - frame.x(from), height);
      pen.hatch(s, frame.x(from), top, frame.x(to) - frame.x(from), height);
      from = to;
    }
  }
}

void draw_timeline(Pen& pen, const Figure& figure, const Frame& frame) {
  const double height = std::max(1.0, std::min(frame.row_height() * 0.8, 22.0));
  for (const Span& span : figure.spans) {
    const double left = frame.x(span.begin);
    const double width = std::max(1.0, frame.x(span.end) - left);
    const double top = frame.row_top(span.row) + (frame.row_height() - height) / 2;
    pen.series_colour(span.series);
    pen.rectangle(left, top, width, height);
    if (height > 4) pen.hatch(span.series, left, top, width, height);
  }
  constexpr std::size_t kCross = 1;
  pen.grey(0);
  for (const Span& span : figure.spans)
    if (span.failed)
      pen.mark(kCross, frame.x(span.end), frame.row_top(span.row) + frame.row_height() / 2,
               std::clamp(height / 2, 2.0, 4.0));
}

// Colours from dark to light through blue, green and yellow; rising lightness keeps them readable in grey.
void image_colour(cairo_t* cairo, double share) {
  struct Stop {
    double red, green, blue;
  };
  static constexpr std::array<Stop, 5> kStops = {{{0.267, 0.005, 0.329},
                                                  {0.230, 0.322, 0.546},
                                                  {0.128, 0.567, 0.551},
                                                  {0.369, 0.789, 0.383},
                                                  {0.993, 0.906, 0.144}}};
  const double place = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0) * (kStops.size() - 1);
  const auto at = std::min(static_cast<std::size_t>(place), kStops.size() - 2);
  const double rest = place - static_cast<double>(at);
  const auto mix = [rest](double a, double b) { return a + (b - a) * rest; };
  cairo_set_source_rgb(cairo, mix(kStops[at].red, kStops[at + 1].red),
                       mix(kStops[at].green, kStops[at + 1].green),
                       mix(kStops[at].blue, kStops[at + 1].blue));
}

void draw_image(Pen& pen, const Image& image, const Box& box) {
  if (image.values.empty()) return;
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  for (const float value : image.values) {
    if (!std::isfinite(value)) continue;
    low = std::min<double>(low, value);
    high = std::max<double>(high, value);
  }
  const double span = high > low ? high - low : 1;
  const double cell = std::min(box.width() / image.columns, box.height() / image.rows);
  const double left = box.left + (box.width() - cell * image.columns) / 2;
  cairo_set_antialias(pen.cairo(), CAIRO_ANTIALIAS_NONE);
  for (std::uint32_t row = 0; row < image.rows; ++row) {
    for (std::uint32_t column = 0; column < image.columns; ++column) {
      image_colour(pen.cairo(), (image.values[std::size_t{row} * image.columns + column] - low) / span);
      pen.rectangle(left + column * cell, box.top + row * cell, cell, cell);
    }
  }
  cairo_set_antialias(pen.cairo(), CAIRO_ANTIALIAS_DEFAULT);
  pen.grey(0.1);
  pen.text(pen.cut(image.name, box.width(), 10), box.left + box.width() / 2, box.bottom + 10, Align::centre,
           10);
}

void draw_images(Pen& pen, const Figure& figure, double width, double height) {
  const auto count = static_cast<double>(figure.images.size());
  if (count == 0) return;
  // Choose the number of columns for which the images are largest.
  double columns = 1;
  double best = 0;
  for (double tried = 1; tried <= count; ++tried) {
    const double side = std::min((width - 20) / tried, (height - 40) / std::ceil(count / tried) - 22);
    if (side > best) {
      best = side;
      columns = tried;
    }
  }
  for (std::size_t i = 0; i < figure.images.size(); ++i) {
    const double column = std::fmod(static_cast<double>(i), columns);
    const double row = std::floor(static_cast<double>(i) / columns);
    const double left = 10 + column * (width - 20) / columns;
    const double top = 34 + row * (best + 22);
    draw_image(pen, figure.images[i], {left + 3, top, left + (width - 20) / columns - 3, top + best});
  }
}

void draw_with_axes(Pen& pen, const Figure& figure, double width, double height) {
  Frame frame(pen, figure, width, height);
  draw_legend(pen, figure, width);
  frame.draw_axes();
  cairo_save(pen.cairo());
  cairo_rectangle(pen.cairo(), frame.box().left, frame.box().top - 3, frame.box().width() + 3,
                  frame.box().height() + 4);
  cairo_clip(pen.cairo());
  switch (figure.kind) {
    case Kind::lines:
      draw_lines(pen, figure, frame);
      break;
    case Kind::scatter:
      draw_scatter(pen, figure, frame);
      break;
    case Kind::histogram:
      draw_histogram(pen, figure, frame);
      break;
    case Kind::bars:
      draw_bars(pen, figure, frame);
      break;
    case Kind::timeline:
      draw_timeline(pen, figure, frame);
      break;
    case Kind::images:
      break;
  }
  cairo_restore(pen.cairo());
  frame.draw_references();
}

}  // namespace

void draw(cairo_t* cairo, const Figure& figure, double width, double height) {
  Pen pen(cairo);
  pen.grey(1);
  cairo_paint(cairo);
  pen.grey(0.05);
  pen.text(pen.cut(figure.title, width * 0.9, kTitleSize), 12, 14, Align::left, kTitleSize, true);
  if (figure.kind == Kind::images) {
    draw_images(pen, figure, width, height);
  } else {
    draw_with_axes(pen, figure, width, height);
  }
}

}  // namespace wflow::cli::plot
