// SPDX-License-Identifier: Apache-2.0
// The sections of a report, in the order of the page. Each writes nothing where there is nothing to show.
#pragma once

#include <string>

#include "cli/report/data.h"
#include "cli/report/page.h"

namespace wflow::cli::report {

struct ReportOptions {
  bool share = false;  // leave out paths, names of hosts and users, and the environment
};

void write_summary(const ReportData& data, Page& page);
void write_steps(const ReportData& data, Page& page);
void write_activity(const ReportData& data, Page& page);
void write_usage(const ReportData& data, Page& page);
void write_failures(const ReportData& data, Page& page);
void write_samples(const ReportData& data, Page& page);
void write_data_sets(const ReportData& data, Page& page);
void write_training(const ReportData& data, Page& page);
void write_lineage(const ReportData& data, const ReportOptions& options, Page& page);

// The graph of the steps as SVG markup; empty for a study of one step or of too many to draw.
std::string graph_markup(const ReportData& data, const Page& page);

// "1 task", "1,234 tasks".
std::string counted(std::uint64_t count, const std::string& one);
// Of processors: "12.3 s", "1,234 core-hours".
std::string core_time_text(double seconds);
// "2026-11-22 23:51:58".
std::string date_text(double unix_s);

}  // namespace wflow::cli::report
