// SPDX-License-Identifier: Apache-2.0
// report: of a step: the figures and tables that `wflow report` shows. No task depends on them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config_table.h"
#include "specs/study/study.h"

namespace wflow::specs {

// Patterns of a shell (*, ?, [..]), relative to the directory of each task.
struct ReportFiles {
  std::vector<std::string> figures, tables;
};

// The media type of a figure by the ending of its name; empty if a report can't show it.
std::string_view figure_type(std::string_view name);
bool is_table_file(std::string_view name);

const config::Table<ReportFiles>& report_table();

// For a study that was read without errors. Empty if the step has no such key.
ReportFiles report_files(const Study& study, std::string_view step);

}  // namespace wflow::specs
