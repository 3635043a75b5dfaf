// SPDX-License-Identifier: Apache-2.0
// wflow-plot: reads figures as JSON from standard input and writes each as a PNG or SVG file.
#include <cairo/cairo-svg.h>
#include <cairo/cairo.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "cli/plot/draw.h"

namespace {

using wflow::Error;
using wflow::ExitCode;
using wflow::cli::plot::Figure;

constexpr int kPixelsPerPoint = 2;

using Surface = std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)>;
using Context = std::unique_ptr<cairo_t, decltype(&cairo_destroy)>;

void check(cairo_status_t status, const std::filesystem::path& path) {
  if (status != CAIRO_STATUS_SUCCESS)
    throw Error(ExitCode::system,
                fmt::format("cannot write {}: {}", path.string(), cairo_status_to_string(status)));
}

void draw_on(cairo_surface_t* surface, const Figure& figure, int width, int height, int scale,
             const std::filesystem::path& path) {
  const Context context(cairo_create(surface), &cairo_destroy);
  cairo_scale(context.get(), scale, scale);
  wflow::cli::plot::draw(context.get(), figure, width, height);
  check(cairo_status(context.get()), path);
}

void write_svg_file(const Figure& figure, const std::filesystem::path& path, int width, int height) {
  const Surface surface(cairo_svg_surface_create(path.c_str(), width, height), &cairo_surface_destroy);
  draw_on(surface.get(), figure, width, height, 1, path);
  cairo_surface_finish(surface.get());
  check(cairo_surface_status(surface.get()), path);
}

void write_png_file(const Figure& figure, const std::filesystem::path& path, int width, int height) {
  const Surface surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, width * kPixelsPerPoint, height * kPixelsPerPoint),
      &cairo_surface_destroy);
  draw_on(surface.get(), figure, width, height, kPixelsPerPoint, path);
  check(cairo_surface_write_to_png(surface.get(), path.c_str()), path);
}

void write_order(const nlohmann::json& order) {
  constexpr int kLeast = 50;
  constexpr int kMost = 10'000;
  const std::filesystem::path path = order.at("path").get<std::string>();
  const int width = order.value("width", 800);
  const int height = order.value("height", 450);
  if (width < kLeast || width > kMost || height < kLeast || height > kMost)
    throw Error(ExitCode::usage, fmt::format("{}: a plot has 50 to 10000 points a side", path.string()));
  const Figure figure = wflow::cli::plot::figure_from_json(order.at("figure"));
  wflow::DurableFile file(path);
  if (path.extension() == ".svg") {
    write_svg_file(figure, file.temporary(), width, height);
  } else {
    write_png_file(figure, file.temporary(), width, height);
  }
  file.publish();
}

std::string read_standard_input() {
  std::string text;
  std::string part(1 << 16, '\0');
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, part.data(), part.size());
    if (got < 0) throw wflow::system_error(errno, "cannot read standard input");
    if (got == 0) return text;
    text.append(part, 0, static_cast<std::size_t>(got));
  }
}

int write_all_orders(int argc, char** /*argv*/) {
  if (argc > 1)
    throw Error(
        ExitCode::usage,
        "wflow-plot takes no arguments: it reads figures as JSON from standard input (docs/report.md)");
  const nlohmann::json orders = nlohmann::json::parse(read_standard_input(), nullptr, false);
  if (!orders.is_array())
    throw Error(ExitCode::usage,
                "wflow-plot reads a JSON list of {\"path\": FILE, \"figure\": FIGURE} (docs/report.md)");
  try {
    for (const nlohmann::json& order : orders) write_order(order);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::data, std::string("not a list of figures: ") + error.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return wflow::run_main("wflow-plot", write_all_orders, argc, argv);
}
