// SPDX-License-Identifier: Apache-2.0
// One description of a plot for both renderers: the script in the page of `wflow report` (as JSON) and cairo
// (wflow-plot, for PNG and SVG files). A value, without any drawing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace wflow::cli::plot {

// Axes of plots, for every renderer: figures drawn by cairo, plots in character cells (cli/top/chart.h) and
// the page of `wflow report`.

enum class Scale : std::uint8_t {
  linear,
  logarithmic,  // only positive numbers are drawn
  elapsed,      // seconds, labelled as durations: 0, 30 s, 1 min, 2 h
  bytes,        // labelled in KiB, MiB, GiB
};

// The least and the greatest of some values.
struct Bounds {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  // Ignores values that are not finite, and on a logarithmic scale those up to 0.
  void add(double value, Scale scale = Scale::linear);
  bool empty() const { return !(low <= high); }
  // True if all values are positive and span more than a factor of 30: a logarithmic axis shows them better.
  bool spans_decades() const;
};

// The range of an axis.
struct Extent {
  double low = 0, high = 1;
  // The position of a value on the axis: 0 at `low`, 1 at `high`.
  double share(Scale scale, double value) const;
};

struct Tick {
  double value = 0;
  std::string label;
};

// About `wanted` ticks at round values in low..high.
std::vector<Tick> ticks(Scale scale, double low, double high, int wanted);

// docs/report.md lists the JSON names of these and of all members below.
enum class Kind : std::uint8_t {
  lines,      // series with x and y, in order of x
  scatter,    // series with x and y; `values`: a third quantity, as the size of the mark
  histogram,  // one series: y[i] is the count between edges[i] and edges[i + 1]
  bars,       // horizontal, stacked: series[s].y[i] belongs to categories[i]
  timeline,   // spans in rows; categories are the rows, series name the states of spans
  images,     // pictures side by side
};

struct Axis {
  std::string name = {};
  std::string unit = {};  // empty: none; shown behind the name
  Scale scale = Scale::linear;
  std::optional<double> low = {}, high = {};  // absent: from the data
};

struct Series {
  std::string name = {};
  std::vector<double> x = {}, y = {};  // not finite: nothing is drawn there, and a line is interrupted
  std::vector<double> values = {};
  bool marks = false;  // for lines: a mark at each point
};

struct Span {
  std::uint32_t row = 0;  // index into categories
  double begin = 0, end = 0;
  std::uint32_t series = 0;
  std::string text = {};  // shown under the pointer
  bool failed = false;    // drawn with a cross
};

// A line across the plot, such as a limit of tasks.
struct Reference {
  double value = 0;
  bool horizontal = false;  // at this y; else at this x
  std::string text = {};
};

struct Image {
  std::string name = {};
  std::uint32_t columns = 0, rows = 0;
  std::vector<float> values = {};  // row by row, the first row at the top
};

struct Figure {
  std::string id = {};  // names the file and the anchor: letters, digits and hyphens
  Kind kind = Kind::lines;
  std::string title = {};
  std::string caption = {};  // a sentence or two under the plot: what the numbers count
  Axis x = {}, y = {};
  std::vector<Series> series = {};
  std::vector<double> edges = {};
  std::vector<std::string> categories = {};
  std::vector<Span> spans = {};
  std::vector<Image> images = {};
  std::vector<Reference> references = {};
  bool diagonal = false;  // y = x
};

// Numbers are rounded to `digits` significant digits; one that is not finite is null.
nlohmann::json to_json(const Figure& figure, int digits = 5);
// The same with what the page needs to draw it: the extent of each axis, and its ticks for several lengths.
nlohmann::json to_page_json(const Figure& figure);
// Error{data} with a sentence if the JSON is not a figure.
Figure figure_from_json(const nlohmann::json& json);

// "simulate: memory" as "simulate-memory": valid as Figure::id.
std::string figure_id(const std::string& text);

// The extents of a figure's axes: their own bounds, else the data with a margin.
Extent x_extent(const Figure& figure);
Extent y_extent(const Figure& figure);

// ---- write.cc: figures as files. The program wflow-plot draws them with cairo, so that wflow itself does
// not load cairo's twenty libraries with every command.

struct PlotFile {
  Figure figure = {};
  std::filesystem::path path = {};  // ends in .png or .svg
  int width = 800, height = 450;    // in points of 1/96 inch; a PNG file has two pixels a point
};

// Writes each file under a temporary name and renames it. Error{usage} for another ending; Error{system}
// if wflow-plot is missing or a file can't be written.
void write_files(const std::vector<PlotFile>& files);

}  // namespace wflow::cli::plot
