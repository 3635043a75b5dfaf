// SPDX-License-Identifier: Apache-2.0
// The page of `wflow report`: a campaign in one HTML file that needs no network.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/plot/figure.h"
#include "cli/report/data.h"
#include "cli/report/page.h"

namespace wflow::cli::report {

struct ReportOptions {
  bool share = false;  // leave out paths, names of hosts and users, and the environment
};

struct Report {
  std::string title, subtitle;
  Page page;
};

Report make_report(const ReportData& data, const ReportOptions& options);

// ---- the sections, in the order of the page. A section without content writes nothing.

void write_summary(const ReportData& data, Page& page);
void write_steps(const ReportData& data, Page& page);
void write_activity(const ReportData& data, Page& page);
void write_usage(const ReportData& data, Page& page);
void write_failures(const ReportData& data, Page& page);
void write_samples(const ReportData& data, Page& page);
void write_data_sets(const ReportData& data, Page& page);
void write_training(const ReportData& data, Page& page);
// Part of that section: analysis.json of a training that has one.
void write_analysis(const TrainingResult& training, Page& page);
// The same of inference.json.
void write_inference(const TrainingResult& training, Page& page);
void write_study_files(const ReportData& data, Page& page);
void write_lineage(const ReportData& data, const ReportOptions& options, Page& page);

// The timeline of all tasks; false if there are too many to draw.
bool add_tasks(const ReportData& data, Page& page);

// The graph of the steps as SVG markup; empty for a study with one step or with too many to draw.
std::string graph_markup(const ReportData& data, const Page& page);

// "1 task", "1,234 tasks".
std::string counted(std::uint64_t count, const std::string& one);
// A processor time: "12.3 s", "1,234 core-hours".
std::string core_time_text(double seconds);
// "2026-11-22 23:51:58".
std::string date_text(double unix_s);

// ---- redact.cc: removes names, hosts and paths from texts, for reports that leave the site

class Redactor {
 public:
  // Replaces `word`, a name of a worker, host or user, wherever it is a separate word.
  void replace(const std::string& word, const std::string& with);
  // Replaces these words, and also absolute paths and IP addresses, which need no list.
  std::string operator()(std::string_view text) const;

 private:
  std::string without_words(std::string_view text) const;
  std::map<std::size_t, std::map<std::string, std::string, std::less<>>, std::greater<>> words_;  // by length
};

// A redactor for all names that the campaign and this machine know.
Redactor redactor_for(const ReportData& data);

}  // namespace wflow::cli::report
