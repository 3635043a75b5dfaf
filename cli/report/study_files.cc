// SPDX-License-Identifier: Apache-2.0
// The figures and tables that the study's own tasks left: report: of a step.
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/report/report.h"
#include "specs/study/report_files.h"
#include "steps/step.h"

namespace wflow::cli::report {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFiles = 40;
constexpr std::uint64_t kBytes = 20'000'000;  // of all files
constexpr std::size_t kFolders = 2000;        // of one step
constexpr std::size_t kTableRows = 200;       // of a table
constexpr std::size_t kTableColumns = 30;

// The regular files below `folder` that match the pattern.
std::vector<fs::path> matches(const fs::path& folder, const std::string& pattern) {
  std::string whole;
  for (const char letter : folder.string()) {
    if (std::string_view("*?[]\\").find(letter) != std::string_view::npos) whole += '\\';
    whole += letter;
  }
  whole += "/" + pattern;
  glob_t found{};
  std::vector<fs::path> files;
  if (::glob(whole.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  std::error_code ignored;
  std::erase_if(files, [&](const fs::path& file) { return !fs::is_regular_file(file, ignored); });
  return files;
}

std::vector<std::vector<std::string>> table_rows(const fs::path& file) {
  csv::Reader reader(file);
  std::vector<std::vector<std::string>> rows = {reader.header()};
  std::vector<std::string> row;
  while (rows.size() <= kTableRows && reader.next(row)) rows.push_back(row);
  for (auto& cells : rows) cells.resize(std::min(cells.size(), kTableColumns));
  return rows;
}

// Reads the files of all steps up to the bounds, and counts the others.
class Collector {
 public:
  explicit Collector(ReportData& data) : data_(data) {}

  void add_step(const specs::PlannedStep& step) {
    const specs::ReportFiles files =
        specs::report_files(data_.plan.study(), data_.plan.study().steps[step.study_step].name);
    if (step.kind == specs::StepKind::convert && step.block_samples > 0) return;  // the closing task is later
    if (files.figures.empty() && files.tables.empty()) return;
    std::size_t folders = 0;
    for (std::uint32_t i = 0; i < step.arrays; ++i) {
      const specs::ArrayId array = step.first_array + i;
      const specs::TaskTemplate task = data_.plan.task_template(array);
      fs::path before;
      for (specs::Element element = 0; element < step.elements; ++element) {
        const fs::path folder = steps::working_directory(task, element);
        if (folder == before) continue;  // of the same bundle, or of a step without samples
        if (folders++ == kFolders) {
          data_.study_notes.push_back(fmt::format("Only the first {} directories of {} were searched.",
                                                  text::format_count(kFolders), step.name));
          return;
        }
        add_folder(specs::task_name(data_.plan, array, element), folder, files);
        before = folder;
      }
    }
  }

  void end() {
    if (left_out_ == 0) return;
    data_.study_notes.push_back(fmt::format(
        "The page shows up to {} files, of up to {} MB in all: {} more are left out, the first of "
        "them is {}.",
        kFiles, kBytes / 1'000'000, text::format_count(left_out_), first_left_out_));
  }

 private:
  void add_folder(const std::string& task, const fs::path& folder, const specs::ReportFiles& files) {
    for (const std::string& pattern : files.figures)
      for (const fs::path& file : matches(folder, pattern)) add(task, folder, file, false);
    for (const std::string& pattern : files.tables)
      for (const fs::path& file : matches(folder, pattern)) add(task, folder, file, true);
  }

  void add(const std::string& task, const fs::path& folder, const fs::path& file, bool is_table) {
    StudyFile shown{.task = task, .name = file.lexically_relative(folder).string(), .bytes = {}, .rows = {}};
    std::error_code error;
    const std::uint64_t size = fs::file_size(file, error);
    if (error || size == 0) return;
    if (data_.study_files.size() == kFiles || bytes_ + size > kBytes) {
      if (left_out_++ == 0) first_left_out_ = fmt::format("{} of {}", shown.name, task);
      return;
    }
    try {
      if (is_table) {
        shown.rows = table_rows(file);
      } else {
        shown.bytes = read_file(file);
      }
    } catch (const Error& problem) {
      data_.study_notes.push_back(fmt::format("{} of {} is left out: {}", shown.name, task, problem.what()));
      return;
    }
    bytes_ += size;
    data_.study_files.push_back(std::move(shown));
  }

  ReportData& data_;
  std::uint64_t bytes_ = 0;
  std::uint64_t left_out_ = 0;
  std::string first_left_out_;
};

void add_table(const StudyFile& file, Page& page) {
  page.heading(fmt::format("{}: {}", file.task, file.name));
  PageTable table{
      .headings = file.rows.front(), .numbers = {}, .rows = {file.rows.begin() + 1, file.rows.end()}};
  for (std::size_t k = 0; k < table.headings.size(); ++k)
    table.numbers.push_back(std::ranges::all_of(table.rows, [&](const std::vector<std::string>& row) {
      return row[k].empty() || text::to_real(row[k]).has_value();
    }));
  page.table(table);
  if (table.rows.size() == kTableRows || table.headings.size() == kTableColumns)
    page.paragraph(
        fmt::format("Up to {} rows and {} columns of a table are shown.", kTableRows, kTableColumns));
}

}  // namespace

void read_study_files(ReportData& data) {
  Collector collector(data);
  for (const specs::PlannedStep& step : data.plan.steps()) collector.add_step(step);
  collector.end();
}

void write_study_files(const ReportData& data, Page& page) {
  if (data.study_files.empty() && data.study_notes.empty()) return;
  page.section("study-files", "Figures and tables of the study");
  for (const StudyFile& file : data.study_files)
    if (file.rows.empty())
      page.picture(fmt::format("{}: {}", file.task, file.name), specs::figure_type(file.name), file.bytes);
  for (const StudyFile& file : data.study_files)
    if (!file.rows.empty()) add_table(file, page);
  for (const std::string& note : data.study_notes) page.paragraph(note);
}

}  // namespace wflow::cli::report
