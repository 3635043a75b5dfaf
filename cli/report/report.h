// SPDX-License-Identifier: Apache-2.0
// The page of `wflow report`: a campaign in one HTML file that needs no network.
#pragma once

#include <string>
#include <vector>

#include "cli/plot/figure.h"
#include "cli/report/data.h"
#include "cli/report/sections.h"

namespace wflow::cli::report {

struct Report {
  std::string html;
  std::vector<plot::Figure> figures;  // in the order of the page; each id is another one
};

Report make_report(const ReportData& data, const ReportOptions& options);

}  // namespace wflow::cli::report
