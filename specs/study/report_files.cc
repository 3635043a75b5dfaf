// SPDX-License-Identifier: Apache-2.0
#include "specs/study/report_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kFigureTypes = {
    {{".png", "image/png"}, {".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"}, {".svg", "image/svg+xml"}}};

// A sentence without its end; empty if the pattern is usable.
std::string problem_of(const std::string& pattern, bool (*is_shown)(std::string_view), const char* kinds) {
  const std::filesystem::path path(pattern);
  if (pattern.empty()) return "is empty";
  if (find_token(pattern)) return "can hold no variable that differs between tasks; write *";
  if (path.is_absolute() || std::ranges::find(path, "..") != path.end())
    return "leaves the directory of the task; name files in it";
  if (!is_shown(pattern)) return fmt::format("does not end as {} do", kinds);
  return {};
}

void check(yaml::MapReader& reader, std::string_view key, const std::vector<std::string>& patterns,
           bool (*is_shown)(std::string_view), const char* kinds) {
  for (const std::string& pattern : patterns)
    if (const std::string problem = problem_of(pattern, is_shown, kinds); !problem.empty())
      reader.diagnostics().error(reader.mark_of(key),
                                 fmt::format("'{}' of {}: '{}' {}", key, reader.where(), pattern, problem));
}

bool is_figure(std::string_view name) {
  return !figure_type(name).empty();
}

}  // namespace

std::string_view figure_type(std::string_view name) {
  const std::string lowered = text::lower(name);
  for (const auto& [ending, type] : kFigureTypes)
    if (lowered.ends_with(ending)) return type;
  return {};
}

bool is_table_file(std::string_view name) {
  return text::lower(name).ends_with(".csv");
}

const config::Table<ReportFiles>& report_table() {
  static const config::Table<ReportFiles> table(
      "report: of a step",
      {config::texts<ReportFiles>("figures", &ReportFiles::figures,
                                  "patterns of PNG, JPEG and SVG files: `plots/*.png`")
           .usually("none")
           .then([](yaml::MapReader& reader, ReportFiles& files) {
             check(reader, "figures", files.figures, is_figure, "PNG, JPEG and SVG files");
           }),
       config::texts<ReportFiles>("tables", &ReportFiles::tables,
                                  "patterns of CSV files with a header line: `summary.csv`")
           .usually("none")
           .then([](yaml::MapReader& reader, ReportFiles& files) {
             check(reader, "tables", files.tables, is_table_file, "CSV files");
           })});
  return table;
}

ReportFiles report_files(const Study& study, std::string_view step) {
  ReportFiles files;
  yaml::Diagnostics ignored("");  // reading the study has reported it all
  const yaml::Node* list = study.expanded.find("study");
  if (list == nullptr) return files;
  for (const yaml::Node& node : list->items) {
    const yaml::Node* name = node.find("name");
    if (name == nullptr || name->text != step) continue;
    const yaml::Node* run = node.find("run");
    const yaml::Node* report = node.find("report");
    if (report == nullptr && run != nullptr && run->is_map()) report = run->find("report");
    if (report != nullptr) report_table().read(*report, files, ignored);
  }
  return files;
}

}  // namespace wflow::specs
