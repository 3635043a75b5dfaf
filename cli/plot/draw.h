// SPDX-License-Identifier: Apache-2.0
// Draws a figure with cairo: on white, for print, in eight colours that differ for colour-blind readers too
// (Okabe and Ito 2008), with a mark and a dash a series, so that it is readable in grey.
#pragma once

#include <cairo/cairo.h>

#include "cli/plot/figure.h"

namespace wflow::cli::plot {

// Fills width × height points of the surface.
void draw(cairo_t* cairo, const Figure& figure, double width, double height);

}  // namespace wflow::cli::plot
