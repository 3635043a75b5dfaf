// SPDX-License-Identifier: Apache-2.0
#include "specs/samples/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "specs/plan/template.h"

namespace wflow::specs {

namespace {

constexpr std::array<std::string_view, 8> kKindNames = {
    "uniform", "latin_hypercube", "sobol", "halton", "grid", "list", "file", "parts"};

}  // namespace

std::string_view name_of(DesignKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

nlohmann::json to_json(const SampleDesign& design) {
  nlohmann::json columns = nlohmann::json::array();
  for (const SampleColumn& column : design.columns) {
    columns.push_back({{"name", column.name},
                       {"low", column.low},
                       {"high", column.high},
                       {"log", column.log},
                       {"integer", column.integer},
                       {"values", column.values}});
  }
  nlohmann::json json = {{"kind", name_of(design.kind)}, {"count", design.count},
                         {"seed", design.seed},          {"columns", std::move(columns)},
                         {"file", design.file.string()}, {"header", design.header}};
  if (!design.checksum.empty()) json["checksum"] = design.checksum;
  if (!design.grown.empty()) json["grown"] = design.grown;
  for (const SampleDesign& part : design.parts) json["parts"].push_back(to_json(part));
  return json;
}

SampleDesign design_from_json(const nlohmann::json& json) {
  try {
    SampleDesign design;
    const auto kind = json.at("kind").get<std::string>();
    const auto at = std::find(kKindNames.begin(), kKindNames.end(), kind);
    if (at == kKindNames.end()) {
      throw Error(ExitCode::version,
                  fmt::format("this wflow knows no sample design '{}'; use a newer one", kind));
    }
    design.kind = static_cast<DesignKind>(at - kKindNames.begin());
    design.count = json.at("count").get<std::uint64_t>();
    design.seed = json.at("seed").get<std::uint64_t>();
    design.file = json.at("file").get<std::string>();
    design.header = json.at("header").get<bool>();
    design.checksum = json.value("checksum", "");
    for (const nlohmann::json& from : json.at("columns")) {
      SampleColumn column;
      column.name = from.at("name").get<std::string>();
      column.low = from.at("low").get<double>();
      column.high = from.at("high").get<double>();
      column.log = from.at("log").get<bool>();
      column.integer = from.at("integer").get<bool>();
      column.values = from.at("values").get<std::vector<std::string>>();
      design.columns.push_back(std::move(column));
    }
    if (json.contains("grown")) design.grown = json.at("grown").get<std::vector<std::uint64_t>>();
    if (json.contains("parts")) {
      for (const nlohmann::json& part : json.at("parts")) design.parts.push_back(design_from_json(part));
    }
    return design;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::data, fmt::format("a sample design does not read: {}", error.what()));
  }
}

double SampleTable::number(std::uint64_t row, std::size_t column) const {
  const std::string cell = text(row, column);
  if (const auto value = text::to_real(cell)) return *value;
  throw Error(ExitCode::data, fmt::format("sample {} has '{}' in column '{}', which is not a number", row,
                                          cell, columns().at(column)));
}

std::vector<std::string> column_names(const SampleDesign& design, std::size_t found) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < found; ++i) {
    names.push_back(i < design.columns.size() ? design.columns[i].name : std::to_string(i));
  }
  return names;
}

std::unique_ptr<const SampleTable> open_samples(const SampleDesign& design) {
  if (design.kind == DesignKind::parts) return parts_table(design);
  if (design.kind != DesignKind::file) return computed_table(design);
  if (!design.checksum.empty() && hash_file(design.file) != design.checksum) {
    throw Error(
        ExitCode::data,
        fmt::format("the campaign's copy of the samples, {}, is damaged or was changed (its checksum does "
                    "not match); put the table that the campaign began with back in its place",
                    design.file.string()));
  }
  const std::string suffix = text::lower(design.file.extension().string());
  if (suffix == ".csv" || suffix == ".tsv" || suffix == ".tab" || suffix == ".lines")
    return text_table(design);
  if (suffix == ".npy") return npy_table(design);
  throw Error(ExitCode::data, fmt::format("{}: a sample file is .csv, .tsv, .tab, .lines or .npy, found '{}'",
                                          design.file.string(), suffix));
}

std::string sample_path(std::uint64_t sample, std::uint64_t count, std::uint32_t level_max_dirs) {
  if (count <= 1 && sample == 0) return {};
  const std::uint64_t base = std::max<std::uint32_t>(level_max_dirs, 2);
  const int width = static_cast<int>(std::to_string(level_max_dirs).size());
  const std::uint64_t last = count == 0 ? 0 : count - 1;
  // One level a power of the base, until the levels hold `count` rows. With more samples, the top level has
  // more directories.
  std::string path;
  std::uint64_t rest = sample;
  std::uint64_t held = 1;
  for (;;) {
    const bool top = held > last / base;  // held * base >= count, without overflow
    path.insert(0, fmt::format("{:0{}}", top ? rest : rest % base, width));
    rest /= base;
    if (top) return path;
    held *= base;
    path.insert(0, "/");
  }
}

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

// The rows of a grid move if another column gets more values.
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
  // The column's place decides the dimension of the sequence and the key of the hash.
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
