// SPDX-License-Identifier: Apache-2.0
// Curves of several trainings in one plot, for a terminal and for files. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/campaign/trainings.h"
#include "cli/plot/figure.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

struct CurvesOptions {
  std::vector<std::string> metrics;  // empty: losses of one training, the ranking's metric of several
  bool logarithmic = false;          // also if the values span little
  bool by_step = false;              // else by epoch, if there are epochs
  double smooth = 0;                 // weight of earlier values, from 0 to below 1 (smoothed())
};

// One curve of the plot; points in order of x.
struct CurveLine {
  std::string label;  // training, and metric if several are drawn
  std::string differs;
  std::string metric;
  double last = 0;  // before smoothing
  std::vector<double> x, y;
};

struct CurveSet {
  std::vector<CurveLine> lines;
  std::string x_name;                      // epoch, step
  std::string y_name;                      // the metric; empty: several
  std::vector<std::string> other_metrics;  // metrics of the trainings that are not drawn
};

// Exponential moving average, y'[i] = (s y'[i-1] + (1 - s) y[i]), divided by 1 - s^(i+1) so that its
// beginning is not biased towards 0 (the correction of Adam: Kingma, Ba 2015, section 3). Skips values that
// are not finite.
std::vector<double> smoothed(const std::vector<double>& values, double weight);

// Error{usage} with the existing names if no training has reported such a metric.
CurveSet curve_set(const std::vector<CurveRun>& runs, const CurvesOptions& options);

// The plot and, below it, one line per curve. Without colours each curve has a sign of its own.
std::vector<std::string> plotted_lines(const CurveSet& set, const CurvesOptions& options,
                                       const Terminal& terminal);

plot::Figure figure_of(const CurveSet& set, const CurvesOptions& options, const std::string& title);

}  // namespace wflow::cli
