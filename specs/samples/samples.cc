// SPDX-License-Identifier: Apache-2.0
#include "specs/samples/samples.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "specs/plan/template.h"
#include "specs/samples/tables.h"

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
    throw Error(ExitCode::data,
                fmt::format("the campaign's copy of the samples, {}, is damaged or was changed (its checksum does "
                            "not match); put the table that the campaign began with back in its place",
                            design.file.string()));
  }
  const std::string suffix = text::lower(design.file.extension().string());
  if (suffix == ".csv" || suffix == ".tsv" || suffix == ".tab" || suffix == ".lines") return text_table(design);
  if (suffix == ".npy") return npy_table(design);
  throw Error(ExitCode::data, fmt::format("{}: a sample file is .csv, .tsv, .tab, .lines or .npy, found '{}'",
                                          design.file.string(), suffix));
}

std::string sample_path(std::uint64_t sample, std::uint64_t count, std::uint32_t level_max_dirs) {
  if (count <= 1 && sample == 0) return {};
  const std::uint64_t base = std::max<std::uint32_t>(level_max_dirs, 2);
  const int width = static_cast<int>(std::to_string(level_max_dirs).size());
  const std::uint64_t last = count == 0 ? 0 : count - 1;
  // One level a power of the base, until the levels hold `count` rows. Where there are more samples, the top
  // level has more directories.
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

}  // namespace wflow::specs
