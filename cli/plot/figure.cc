// SPDX-License-Identifier: Apache-2.0
#include "cli/plot/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"

namespace wflow::cli::plot {

namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 6> kKindNames = {"lines", "scatter",  "histogram",
                                                        "bars",  "timeline", "images"};
constexpr std::array<std::string_view, 4> kScaleNames = {"linear", "logarithmic", "elapsed", "bytes"};

template <class Enum, std::size_t count>
Enum value_named(const std::array<std::string_view, count>& names, const std::string& name) {
  for (std::size_t i = 0; i < count; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  throw Error(ExitCode::data, fmt::format("a figure has the unknown kind or scale '{}'", name));
}

// Writes numbers with few significant digits, because most of a page is numbers.
class Rounding {
 public:
  explicit Rounding(int digits) : digits_(digits) {}

  Json operator()(double value) const {
    if (!std::isfinite(value)) return nullptr;
    std::array<char, 40> text{};
    const auto written =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits_);
    double rounded = value;
    std::from_chars(text.data(), written.ptr, rounded);
    // Write whole numbers without ".0".
    constexpr double kExact = 9e15;
    if (std::abs(rounded) < kExact && rounded == std::floor(rounded))
      return static_cast<std::int64_t>(rounded);
    return rounded;
  }

  template <class Numbers>
  Json list(const Numbers& numbers) const {
    Json list = Json::array();
    for (const auto number : numbers) list.push_back((*this)(static_cast<double>(number)));
    return list;
  }

 private:
  int digits_;
};

std::vector<double> numbers_in(const Json& json, const char* key) {
  std::vector<double> numbers;
  const auto found = json.find(key);
  if (found == json.end()) return numbers;
  numbers.reserve(found->size());
  for (const Json& number : *found) numbers.push_back(number_or_nan(number));
  return numbers;
}

Json json_of(const Axis& axis, const Rounding& rounded) {
  Json json = {{"name", axis.name}, {"scale", kScaleNames[static_cast<std::size_t>(axis.scale)]}};
  if (!axis.unit.empty()) json["unit"] = axis.unit;
  if (axis.low) json["low"] = rounded(*axis.low);
  if (axis.high) json["high"] = rounded(*axis.high);
  return json;
}

Axis axis_from(const Json& json) {
  Axis axis{.name = json.value("name", ""),
            .unit = json.value("unit", ""),
            .scale = value_named<Scale>(kScaleNames, json.value("scale", "linear")),
            .low = {},
            .high = {}};
  if (json.contains("low")) axis.low = number_or_nan(json.at("low"));
  if (json.contains("high")) axis.high = number_or_nan(json.at("high"));
  return axis;
}

Json json_of(const Series& series, const Rounding& rounded) {
  Json json = {{"name", series.name}};
  if (!series.x.empty()) json["x"] = rounded.list(series.x);
  if (!series.y.empty()) json["y"] = rounded.list(series.y);
  if (!series.values.empty()) json["values"] = rounded.list(series.values);
  if (series.marks) json["marks"] = true;
  return json;
}

Series series_from(const Json& json) {
  return {.name = json.value("name", ""),
          .x = numbers_in(json, "x"),
          .y = numbers_in(json, "y"),
          .values = numbers_in(json, "values"),
          .marks = json.value("marks", false)};
}

Image image_from(const Json& json) {
  Image image{.name = json.value("name", ""),
              .columns = json.value("columns", 0U),
              .rows = json.value("rows", 0U),
              .values = {}};
  for (const double value : numbers_in(json, "values")) image.values.push_back(static_cast<float>(value));
  if (image.values.size() != std::size_t{image.columns} * image.rows)
    throw Error(ExitCode::data, "a figure has a picture whose numbers do not fill its rows and columns");
  return image;
}

Figure checked(Figure figure) {
  for (const Series& series : figure.series) {
    const bool points = figure.kind == Kind::lines || figure.kind == Kind::scatter;
    if (points && series.x.size() != series.y.size())
      throw Error(ExitCode::data, fmt::format("the figure '{}' has a series with {} x and {} y", figure.title,
                                              series.x.size(), series.y.size()));
    if (figure.kind == Kind::histogram && series.y.size() + 1 != figure.edges.size())
      throw Error(ExitCode::data, fmt::format("the figure '{}' has {} counts between {} edges", figure.title,
                                              series.y.size(), figure.edges.size()));
    if (figure.kind == Kind::bars && series.y.size() != figure.categories.size())
      throw Error(ExitCode::data, fmt::format("the figure '{}' has {} bars for {} categories", figure.title,
                                              series.y.size(), figure.categories.size()));
  }
  for (const Span& span : figure.spans)
    if (span.row >= figure.categories.size() || span.series >= figure.series.size())
      throw Error(ExitCode::data,
                  fmt::format("the figure '{}' has a span outside of its rows", figure.title));
  return figure;
}

Figure read_figure(const Json& json) {
  Figure figure;
  figure.id = json.value("id", "");
  figure.kind = value_named<Kind>(kKindNames, json.at("kind").get<std::string>());
  figure.title = json.value("title", "");
  figure.caption = json.value("caption", "");
  figure.x = axis_from(json.value("x", Json::object()));
  figure.y = axis_from(json.value("y", Json::object()));
  for (const Json& series : json.value("series", Json::array())) figure.series.push_back(series_from(series));
  figure.edges = numbers_in(json, "edges");
  figure.categories = json.value("categories", std::vector<std::string>());
  for (const Json& span : json.value("spans", Json::array()))
    figure.spans.push_back({.row = span.at(0).get<std::uint32_t>(),
                            .begin = number_or_nan(span.at(1)),
                            .end = number_or_nan(span.at(2)),
                            .series = span.at(3).get<std::uint32_t>(),
                            .text = span.at(4).get<std::string>(),
                            .failed = span.size() > 5 && span.at(5).get<bool>()});
  for (const Json& image : json.value("images", Json::array())) figure.images.push_back(image_from(image));
  for (const Json& line : json.value("references", Json::array()))
    figure.references.push_back({.value = number_or_nan(line.at("value")),
                                 .horizontal = line.value("horizontal", false),
                                 .text = line.value("text", "")});
  figure.diagonal = json.value("diagonal", false);
  return checked(std::move(figure));
}

Extent extent_of(Axis axis, Bounds bounds, bool from_zero) {
  // A logarithmic axis can't show 0.
  if (axis.scale == Scale::logarithmic) {
    if (axis.low && !(*axis.low > 0)) axis.low.reset();
    if (axis.high && !(*axis.high > 0)) axis.high.reset();
  }
  if (axis.low) bounds.low = *axis.low;
  if (axis.high) bounds.high = *axis.high;
  if (!(bounds.low <= bounds.high)) return axis.scale == Scale::logarithmic ? Extent{1, 10} : Extent{0, 1};
  if (axis.scale == Scale::logarithmic) {
    if (bounds.low == bounds.high) return {bounds.low / 2, bounds.high * 2};
    // A margin, so that no mark lies on the frame.
    const double margin = std::pow(bounds.high / bounds.low, 0.04);
    return {axis.low ? bounds.low : bounds.low / margin, axis.high ? bounds.high : bounds.high * margin};
  }
  if (from_zero && !axis.low) bounds.low = std::min(bounds.low, 0.0);
  if (bounds.low == bounds.high) {
    const double around = bounds.high == 0 ? 1 : std::abs(bounds.high) / 2;
    return {from_zero ? bounds.low : bounds.low - around, bounds.high + around};
  }
  // A margin, so that no mark lies on the frame.
  constexpr double kMargin = 0.04;
  const double margin = (bounds.high - bounds.low) * kMargin;
  return {axis.low || (from_zero && bounds.low == 0) ? bounds.low : bounds.low - margin,
          axis.high ? bounds.high : bounds.high + margin};
}

void add_bars(const Figure& figure, Bounds& bounds) {
  bounds.add(0, Scale::linear);
  for (std::size_t i = 0; i < figure.categories.size(); ++i) {
    double sum = 0;
    for (const Series& series : figure.series) sum += series.y[i];
    bounds.add(sum, Scale::linear);
  }
}

}  // namespace

nlohmann::json to_json(const Figure& figure, int digits) {
  const Rounding rounded(digits);
  Json json = {{"id", figure.id},
               {"kind", kKindNames[static_cast<std::size_t>(figure.kind)]},
               {"title", figure.title},
               {"x", json_of(figure.x, rounded)},
               {"y", json_of(figure.y, rounded)}};
  if (!figure.caption.empty()) json["caption"] = figure.caption;
  for (const Series& series : figure.series) json["series"].push_back(json_of(series, rounded));
  if (!figure.edges.empty()) json["edges"] = rounded.list(figure.edges);
  if (!figure.categories.empty()) json["categories"] = figure.categories;
  for (const Span& span : figure.spans) {
    Json item = Json::array({span.row, rounded(span.begin), rounded(span.end), span.series, span.text});
    if (span.failed) item.push_back(true);
    json["spans"].push_back(std::move(item));
  }
  for (const Image& image : figure.images)
    json["images"].push_back({{"name", image.name},
                              {"columns", image.columns},
                              {"rows", image.rows},
                              {"values", rounded.list(image.values)}});
  for (const Reference& line : figure.references)
    json["references"].push_back(
        {{"value", rounded(line.value)}, {"horizontal", line.horizontal}, {"text", line.text}});
  if (figure.diagonal) json["diagonal"] = true;
  return json;
}

namespace {

// Ticks for short and long axes, the fewest first: the page takes the last list that fits.
void add_ticks(const Axis& axis, const Extent& extent, Json& json) {
  constexpr int kDigits = 9;
  const Rounding rounded(kDigits);
  json["extent"] = rounded.list(std::array{extent.low, extent.high});
  Json lists = Json::array();
  for (const int wanted : {2, 3, 4, 6, 8, 12}) {
    Json list = Json::array();
    for (const Tick& tick : ticks(axis.scale, extent.low, extent.high, wanted))
      list.push_back({rounded(tick.value), tick.label});
    if (lists.empty() || list.size() > lists.back().size()) lists.push_back(std::move(list));
  }
  json["ticks"] = std::move(lists);
}

}  // namespace

nlohmann::json to_page_json(const Figure& figure) {
  Json json = to_json(figure);
  if (figure.kind == Kind::images) return json;
  add_ticks(figure.x, x_extent(figure), json["x"]);
  const bool rows = figure.kind == Kind::bars || figure.kind == Kind::timeline;
  if (!rows) add_ticks(figure.y, y_extent(figure), json["y"]);
  return json;
}

Figure figure_from_json(const nlohmann::json& json) {
  try {
    return read_figure(json);
  } catch (const Json::exception& error) {
    throw Error(ExitCode::data, std::string("no figure: ") + error.what());
  }
}

std::string figure_id(const std::string& text) {
  std::string id;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      id.push_back(c);
    } else if (!id.empty() && id.back() != '-') {
      id.push_back('-');
    }
  }
  while (!id.empty() && id.back() == '-') id.pop_back();
  return id;
}

Extent x_extent(const Figure& figure) {
  Bounds bounds;
  for (const Series& series : figure.series)
    for (const double x : series.x) bounds.add(x, figure.x.scale);
  for (const double edge : figure.edges) bounds.add(edge, figure.x.scale);
  for (const Span& span : figure.spans) {
    bounds.add(span.begin, figure.x.scale);
    bounds.add(span.end, figure.x.scale);
  }
  for (const Reference& line : figure.references)
    if (!line.horizontal) bounds.add(line.value, figure.x.scale);
  if (figure.kind == Kind::bars) add_bars(figure, bounds);
  const bool from_edge = figure.kind == Kind::timeline || figure.kind == Kind::bars;
  Axis axis = figure.x;
  if (figure.kind == Kind::histogram && bounds.low <= bounds.high) {
    if (!axis.low) axis.low = bounds.low;
    if (!axis.high) axis.high = bounds.high;
  }
  return extent_of(axis, bounds, from_edge);
}

Extent y_extent(const Figure& figure) {
  Bounds bounds;
  for (const Series& series : figure.series)
    for (const double y : series.y) bounds.add(y, figure.y.scale);
  for (const Reference& line : figure.references)
    if (line.horizontal) bounds.add(line.value, figure.y.scale);
  return extent_of(figure.y, bounds, figure.kind == Kind::histogram);
}

}  // namespace wflow::cli::plot
