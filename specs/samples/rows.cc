// SPDX-License-Identifier: Apache-2.0
#include "specs/samples/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/text.h"

namespace wflow::specs {

namespace {

bool is_written_down(const SampleDesign& design) {
  return design.kind == DesignKind::file || design.kind == DesignKind::list ||
         design.kind == DesignKind::parts;
}

std::optional<std::size_t> index_of(const std::vector<std::string>& names, const std::string& name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<std::size_t>(at - names.begin());
}

std::vector<std::string> names_of(const SampleDesign& design) {
  std::vector<std::string> names;
  for (const SampleColumn& column : design.columns) names.push_back(column.name);
  return names;
}

// The rows of a grid change their places where another column has more values.
std::string grid_signature(const SampleDesign& design, std::size_t column) {
  std::uint64_t stride = 1;
  for (std::size_t i = column + 1; i < design.columns.size(); ++i) stride *= design.columns[i].values.size();
  std::string text = fmt::format("grid {}", stride);
  for (const std::string& value : design.columns[column].values)
    text += fmt::format(" {}:{}", value.size(), value);
  return text;
}

bool same_file(const SampleDesign& from, const SampleDesign& to) {
  std::error_code none;
  if (std::filesystem::equivalent(from.file, to.file, none)) return true;
  return std::filesystem::file_size(from.file, none) == std::filesystem::file_size(to.file, none) &&
         hash_file(from.file) == hash_file(to.file);
}

class RowComparison {
 public:
  RowComparison(const SampleDesign& from, const SampleDesign& to) : from_(from), to_(to) {}

  std::vector<RowRange> compare(const std::vector<std::string>& columns) {
    const std::uint64_t rows = std::min(from_.count, to_.count);
    if (rows == 0) return {};
    bool cells = false;
    for (const std::string& column : columns) {
      const auto one = index_of(names_of(from_), column);
      const auto other = index_of(names_of(to_), column);
      if (!one || !other) return {};
      const std::string was = column_signature(from_, *one);
      const std::string is = column_signature(to_, *other);
      if (was != is && !is_written_down(from_) && !is_written_down(to_)) return {};
      if (was == is && !was.empty()) continue;
      pairs_.emplace_back(*one, *other);
      cells = true;
    }
    const bool files = from_.kind == DesignKind::file && to_.kind == DesignKind::file;
    const bool same_places =
        std::all_of(pairs_.begin(), pairs_.end(), [](const auto& pair) { return pair.first == pair.second; });
    if (!cells || (files && same_places && from_.header == to_.header && same_file(from_, to_)))
      return {{0, rows - 1}};
    return compare_cells(rows);
  }

 private:
  std::vector<RowRange> compare_cells(std::uint64_t rows) const {
    const auto one = open_samples(from_);
    const auto other = open_samples(to_);
    std::vector<RowRange> equal;
    for (std::uint64_t row = 0; row < rows; ++row) {
      const bool same = std::all_of(pairs_.begin(), pairs_.end(), [&](const auto& pair) {
        return one->text(row, pair.first) == other->text(row, pair.second);
      });
      if (!same) continue;
      const bool joins = !equal.empty() && equal.back().last + 1 == row;
      joins ? void(equal.back().last = row) : equal.push_back({row, row});
    }
    return equal;
  }

  const SampleDesign& from_;
  const SampleDesign& to_;
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;  // places of columns to compare cell by cell
};

}  // namespace

std::string column_signature(const SampleDesign& design, std::size_t column) {
  if (is_written_down(design)) return {};
  if (design.kind == DesignKind::grid) return grid_signature(design, column);
  const SampleColumn& c = design.columns.at(column);
  // The place decides the dimension of the sequence and the key of the hash.
  std::string text = fmt::format("{} seed {} column {} [{}, {}]{}{}", name_of(design.kind), design.seed,
                                 column, text::from_real(c.low), text::from_real(c.high), c.log ? " log" : "",
                                 c.integer ? " integer" : "");
  if (design.kind == DesignKind::latin_hypercube)
    text += fmt::format(" of {} after {}", design.count, fmt::join(design.grown, ", "));
  return text;
}

std::vector<RowRange> equal_rows(const SampleDesign& from, const SampleDesign& to,
                                 const std::vector<std::string>& columns) {
  const bool by_history = from.kind == DesignKind::latin_hypercube || from.kind == DesignKind::parts ||
                          to.kind == DesignKind::parts;
  if (by_history && from.count > 0 && !growth_problem(from, to)) return {{0, from.count - 1}};
  return RowComparison(from, to).compare(columns);
}

}  // namespace wflow::specs
