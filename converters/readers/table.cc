// SPDX-License-Identifier: Apache-2.0
// Columns of text: CSV with a header, or columns between blanks as numpy.savetxt writes them.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/csv.h"
#include "base/error.h"
#include "base/text.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

std::string_view unquoted(std::string_view cell) {
  cell = text::trim(cell);
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
  return cell;
}

class TableInput final : public MemoryReader {
 public:
  TableInput(const fs::path& path, const Selector& selector) : path_(path) {
    const InputFile plain(path);
    csv::LineReader lines(plain.descriptor(), path);
    csv::Line line;
    while (lines.next(line)) take_line(line, selector);
    if (rows_ == 0) throw Error(ExitCode::data, fmt::format("{} has no row of numbers", path.string()));
    field_.dtype = DType::float64;
    field_.shape = {rows_};
    field_.axes = "T";
    if (columns_.size() > 1) {
      for (const std::size_t column : columns_)
        field_.components.push_back(column < names_.size() ? names_[column] : std::to_string(column));
    }
    bytes_.resize(values_.size() * sizeof(double));
    std::memcpy(bytes_.data(), values_.data(), bytes_.size());
    values_.clear();
  }

 private:
  [[noreturn]] void fail(const csv::Line& line, const std::string& what) const {
    throw Error(ExitCode::data, fmt::format("{}:{}: {}", path_.string(), line.number, what));
  }

  void take_line(const csv::Line& line, const Selector& selector) {
    const std::string_view whole = text::trim(line.text);
    if (width_ == 0 && whole.starts_with('#'))
      comment_ = whole.substr(1);  // may have the names of the columns
    const std::string_view row = csv::without_comment(line.text);
    if (row.empty()) return;
    if (width_ == 0) {
      separator_ = row.find(',') == std::string_view::npos ? csv::Separator::blanks : csv::Separator::comma;
      if (begin_table(csv::split(row, separator_), line, selector)) return;
    }
    const auto cells = csv::split(row, separator_);
    if (cells.size() != width_)
      fail(line, fmt::format("this row has {} columns, the first has {}", cells.size(), width_));
    for (const std::size_t column : columns_) {
      const std::string_view cell = unquoted(cells[column]);
      const auto value = text::to_real(cell);
      if (!value)
        fail(line, fmt::format("'{}' in column {} is not a number", text::tail(cell, 40), name_of(column)));
      values_.push_back(*value);
    }
    if (values_.size() * sizeof(double) > kMostSampleBytes)
      fail(line, "the table is of more than 4 GiB, which no sample may have");
    ++rows_;
  }

  // True if the first row has the columns' names.
  bool begin_table(const std::vector<std::string_view>& cells, const csv::Line& line,
                   const Selector& selector) {
    width_ = cells.size();
    const bool numbers = std::all_of(cells.begin(), cells.end(), [](std::string_view cell) {
      return text::to_real(unquoted(cell)).has_value();
    });
    if (!numbers) {
      for (const std::string_view cell : cells) names_.emplace_back(unquoted(cell));
    } else if (!comment_.empty()) {
      const auto separator =
          comment_.find(',') == std::string::npos ? csv::Separator::blanks : csv::Separator::comma;
      const auto words = csv::split(comment_, separator);
      if (words.size() == width_) {
        for (const std::string_view word : words) names_.emplace_back(unquoted(word));
      }
    }
    choose_columns(line, selector);
    return !numbers;
  }

  void choose_columns(const csv::Line& line, const Selector& selector) {
    for (std::size_t k = 0; selector.columns.empty() && k < width_; ++k) columns_.push_back(k);
    for (const std::string& wanted : selector.columns) {
      const auto found = std::find(names_.begin(), names_.end(), wanted);
      const auto number = text::to_integer(wanted);
      if (found != names_.end()) {
        columns_.push_back(static_cast<std::size_t>(found - names_.begin()));
      } else if (number && *number >= 0 && static_cast<std::size_t>(*number) < width_) {
        columns_.push_back(static_cast<std::size_t>(*number));
      } else if (names_.empty()) {
        fail(line,
             fmt::format("there is no column '{}': the columns have no names here, only numbers from 0 to {}",
                         wanted, width_ - 1));
      } else {
        no_such_field(path_, "column", wanted, names_);
      }
    }
  }

  std::string name_of(std::size_t column) const {
    return column < names_.size() ? fmt::format("'{}'", names_[column]) : fmt::to_string(column);
  }

  fs::path path_;
  csv::Separator separator_ = csv::Separator::comma;
  std::string comment_;
  std::vector<std::string> names_;
  std::vector<std::size_t> columns_;
  std::vector<double> values_;
  std::size_t width_ = 0;
  std::size_t rows_ = 0;
};

}  // namespace

std::unique_ptr<InputReader> open_table(const fs::path& path, const Selector& selector) {
  return std::make_unique<TableInput>(path, selector);
}

}  // namespace wflow::converters
