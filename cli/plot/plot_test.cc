// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/plot/draw.h"
#include "cli/plot/figure.h"

namespace wflow::cli::plot {
namespace {

Figure curves() {
  Figure figure{.id = "loss", .kind = Kind::lines, .title = "loss <of> \"both\""};
  figure.x = {.name = "epoch"};
  figure.y = {.name = "loss", .unit = "nats", .scale = Scale::logarithmic};
  figure.series = {{.name = "train", .x = {1, 2, 3}, .y = {1, 0.1, 0.01}},
                   {.name = "validation", .x = {1, 2, 3}, .y = {2, std::nan(""), 0.05}, .marks = true}};
  figure.references = {{.value = 0.5, .horizontal = true, .text = "target"}};
  return figure;
}

Figure of_kind(Kind kind) {
  Figure figure{.id = "f", .kind = kind, .title = "a figure"};
  figure.x = {.name = "x", .scale = kind == Kind::timeline ? Scale::elapsed : Scale::linear};
  figure.y = {.name = "y"};
  switch (kind) {
    case Kind::lines:
      return curves();
    case Kind::scatter:
      figure.series = {{.name = "a", .x = {1, 2}, .y = {3, 4}, .values = {1, 2}},
                       {.name = "b", .x = {5}, .y = {3}}};
      figure.diagonal = true;
      break;
    case Kind::histogram:
      figure.edges = {0, 1, 2, 4};
      figure.series = {{.name = "a", .y = {3, 0, 9}}};
      break;
    case Kind::bars:
      figure.categories = {"node1", "node2"};
      figure.series = {{.name = "exit 1", .y = {3, 0}}, {.name = "killed", .y = {1, 5}}};
      break;
    case Kind::timeline:
      figure.categories = {"w1", "w2"};
      figure.series = {{.name = "busy"}, {.name = "idle"}};
      figure.spans = {{.row = 0, .begin = 0, .end = 30, .series = 0, .text = "x"},
                      {.row = 1, .begin = 10, .end = 95, .series = 1, .text = "", .failed = true}};
      break;
    case Kind::images:
      figure.images = {{.name = "channel 0", .columns = 3, .rows = 2, .values = {0, 1, 2, 3, 4, 5}}};
      break;
  }
  return figure;
}

constexpr Kind kKinds[] = {Kind::lines, Kind::scatter,  Kind::histogram,
                           Kind::bars,  Kind::timeline, Kind::images};

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "wflow-plot-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

// The number of coloured pixels in the middle of an image: axes and text are grey.
std::size_t coloured_pixels(const Figure& figure) {
  constexpr int kWidth = 400;
  constexpr int kHeight = 300;
  cairo_surface_t* surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, kWidth, kHeight);
  cairo_t* cairo = cairo_create(surface);
  draw(cairo, figure, kWidth, kHeight);
  EXPECT_EQ(cairo_status(cairo), CAIRO_STATUS_SUCCESS);
  cairo_surface_flush(surface);
  std::size_t coloured = 0;
  const unsigned char* bytes = cairo_image_surface_get_data(surface);
  const int stride = cairo_image_surface_get_stride(surface);
  for (int y = 50; y < kHeight - 50; ++y) {
    for (int x = 10; x < kWidth; ++x) {
      const unsigned char* pixel = bytes + y * stride + x * 4;
      const auto [low, high] = std::minmax({pixel[0], pixel[1], pixel[2]});
      if (high - low > 40) ++coloured;
    }
  }
  cairo_destroy(cairo);
  cairo_surface_destroy(surface);
  return coloured;
}

TEST(Figure, IsTheSameAfterJson) {
  for (const Kind kind : kKinds) {
    const nlohmann::json json = to_json(of_kind(kind));
    EXPECT_EQ(to_json(figure_from_json(json)), json);
  }
}

TEST(Figure, RoundsNumbersAndKeepsGaps) {
  Figure figure = curves();
  figure.series[0].y = {1.0 / 3, 1e300 * 1e300, 12345678.0};
  const nlohmann::json json = to_json(figure, 3);
  EXPECT_EQ(json.at("series").at(0).at("y").dump(), "[0.333,null,12300000]");
}

TEST(Figure, RefusesWhatDoesNotFit) {
  nlohmann::json json = to_json(curves());
  json["series"][0]["x"] = {1};
  EXPECT_THROW(figure_from_json(json), Error);
  json = to_json(of_kind(Kind::timeline));
  json["spans"][0][0] = 7;
  EXPECT_THROW(figure_from_json(json), Error);
  EXPECT_THROW(figure_from_json(nlohmann::json{{"kind", "pie"}}), Error);
  EXPECT_THROW(figure_from_json(nlohmann::json::array()), Error);
}

TEST(Figure, HasItsTicksInAPage) {
  const nlohmann::json json = to_page_json(of_kind(Kind::histogram));
  EXPECT_EQ(json.at("x").at("extent").dump(), "[0,4]");
  const nlohmann::json& lists = json.at("x").at("ticks");
  ASSERT_GT(lists.size(), 1U);
  EXPECT_EQ(lists.at(0).dump(), R"([[0,"0"],[2,"2"],[4,"4"]])");
  for (std::size_t i = 1; i < lists.size(); ++i) EXPECT_GT(lists.at(i).size(), lists.at(i - 1).size());
  EXPECT_FALSE(to_page_json(of_kind(Kind::bars)).at("y").contains("ticks")) << "its rows have names";
}

TEST(Ticks, AreRoundAndInside) {
  const auto labels = [](Scale scale, double low, double high) {
    std::string all;
    for (const Tick& tick : ticks(scale, low, high, 4)) all += tick.label + "|";
    return all;
  };
  EXPECT_EQ(labels(Scale::linear, 0, 1), "0.0|0.5|1.0|");
  EXPECT_EQ(labels(Scale::linear, -3, 9), "0|5|");
  EXPECT_EQ(labels(Scale::linear, -1.2e6, 1.2e6), "-1,000,000|0|1,000,000|");
  EXPECT_EQ(labels(Scale::linear, 0, 3e9), "0|1e+09|2e+09|3e+09|");
  EXPECT_EQ(labels(Scale::logarithmic, 0.01, 100), "0.01|0.1|1|10|100|");
  EXPECT_EQ(labels(Scale::logarithmic, 1.02, 1.11), "1.05|1.10|");
  EXPECT_EQ(labels(Scale::elapsed, 0, 120), "0|30 s|1 min|1 min 30 s|2 min|");
  EXPECT_EQ(labels(Scale::bytes, 0, 4.0 * (1 << 20)), "0|1.0 MiB|2.0 MiB|3.0 MiB|4.0 MiB|");
  EXPECT_EQ(ticks(Scale::linear, 5, 5, 4).size(), 1U);
}

TEST(Ticks, EndWhereAStepIsBelowTheLastBit) {
  EXPECT_LE(ticks(Scale::linear, 0.1, std::nextafter(0.1, 1), 4).size(), 3U);
  EXPECT_LE(ticks(Scale::linear, 1e17, 1e17 + 16, 9).size(), 3U);
}

TEST(Ticks, ALogarithmicAxisFromZeroBeginsAtItsData) {
  Figure figure;
  figure.x.scale = Scale::logarithmic;
  figure.x.low = 0;
  figure.series = {{.name = "a", .x = {1, 100}, .y = {1, 2}}};
  const Extent extent = x_extent(figure);
  EXPECT_GT(extent.low, 0.5);
  EXPECT_LT(extent.low, 1);
  EXPECT_GT(ticks(Scale::logarithmic, extent.low, extent.high, 4).size(), 1U);
}

TEST(Ticks, ValuesThatSpanDecadesAskForALogarithmicAxis) {
  Bounds bounds;
  EXPECT_TRUE(bounds.empty());
  EXPECT_FALSE(bounds.spans_decades());
  for (const double value : {1.0, 29.0, std::nan("")}) bounds.add(value);
  EXPECT_FALSE(bounds.spans_decades());
  bounds.add(31);
  EXPECT_TRUE(bounds.spans_decades());
  bounds.add(0, Scale::logarithmic);
  EXPECT_TRUE(bounds.spans_decades()) << "such a scale ignores 0";
  bounds.add(0);
  EXPECT_FALSE(bounds.spans_decades());
  const Extent decades = {1, 100};
  EXPECT_DOUBLE_EQ(decades.share(Scale::logarithmic, 10), 0.5);
  EXPECT_DOUBLE_EQ(decades.share(Scale::linear, 50.5), 0.5);
}

TEST(Draw, ShowsEachKind) {
  for (const Kind kind : kKinds) {
    Figure empty = of_kind(kind);
    empty.series.clear();
    empty.spans.clear();
    empty.images.clear();
    EXPECT_EQ(coloured_pixels(empty), 0U) << static_cast<int>(kind);
    EXPECT_GT(coloured_pixels(of_kind(kind)), 20U) << static_cast<int>(kind);
  }
}

TEST(Draw, StandsDataThatAreNone) {
  Figure figure = curves();
  for (Series& series : figure.series) series.x = series.y = {};
  EXPECT_EQ(coloured_pixels(figure), 0U);
  figure.series[0].x = figure.series[0].y = {std::nan("")};
  figure.references.clear();
  EXPECT_EQ(coloured_pixels(figure), 0U);
  EXPECT_EQ(coloured_pixels({.id = "n", .kind = Kind::timeline}), 0U);
  EXPECT_EQ(coloured_pixels({.id = "n", .kind = Kind::images}), 0U);
}

TEST(WriteFiles, MakesPngAndSvg) {
  const Folder folder;
  write_files({{curves(), folder.path / "a.png"}, {curves(), folder.path / "a.svg"}});
  EXPECT_EQ(read_file(folder.path / "a.png").substr(1, 3), "PNG");
  EXPECT_NE(read_file(folder.path / "a.svg").find("<svg"), std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 2)
      << "temporary files are left";
}

TEST(WriteFiles, NamesWhatIsWrong) {
  const Folder folder;
  EXPECT_THROW(write_files({{curves(), folder.path / "a.gif"}}), Error);
  try {
    write_files({{curves(), folder.path / "none" / "a.png"}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("none"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace wflow::cli::plot
