// SPDX-License-Identifier: Apache-2.0
// Figures as files. The program wflow-plot draws them with cairo, so that wflow itself does not load cairo's
// twenty libraries with every command.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/plot/figure.h"

namespace wflow::cli::plot {

struct PlotFile {
  Figure figure = {};
  std::filesystem::path path = {};  // ends in .png or .svg
  int width = 800, height = 450;    // in points of 1/96 inch; a PNG file has two pixels a point
};

// Each file is written under a temporary name and renamed. Error{usage} for another ending; Error{system}
// when wflow-plot is missing or a file can't be written.
void write_files(const std::vector<PlotFile>& files);
void write_png(const Figure& figure, const std::filesystem::path& path);
void write_svg(const Figure& figure, const std::filesystem::path& path);

}  // namespace wflow::cli::plot
