// SPDX-License-Identifier: Apache-2.0
#include "converters/input/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

std::string with_sample_id(std::string name, std::int64_t id) {
  constexpr std::string_view kToken = "$(MERLIN_SAMPLE_ID)";
  for (std::size_t at = name.find(kToken); at != std::string::npos; at = name.find(kToken, at))
    name.replace(at, kToken.size(), std::to_string(id));
  return name;
}

std::vector<fs::path> files_of(const FieldConfig& field, const SampleRow& row) {
  if (field.from_parameters) return {};
  if (field.files.empty()) return {row.file};
  std::vector<fs::path> files;
  for (const std::string& name : field.files)
    files.push_back(row.directory.empty() ? fs::path() : row.directory / with_sample_id(name, row.id));
  return files;
}

// Readers that this sample has opened. A reader is of a file and what decides how it is opened.
class OpenFiles {
 public:
  InputReader& get(const fs::path& path, const Selector& selector) {
    // Formats that read the selection when they open are never shared.
    const Format format = format_of(path, selector);
    const bool shared = format == Format::hdf5 || format == Format::netcdf || format == Format::npz ||
                        format == Format::text || format == Format::json;
    const std::string key = shared ? fmt::format("{}:{}", static_cast<int>(format), path.string())
                                   : fmt::format("#{}", readers_.size());
    auto& reader = readers_[key];
    if (!reader) reader = open_input(path, selector);
    return *reader;
  }

 private:
  std::map<std::string, std::unique_ptr<InputReader>> readers_;
};

std::string place_of(const fs::path& file, const SampleRow& row) {
  return row.row ? fmt::format("{} (row {})", file.string(), *row.row) : file.string();
}

std::vector<FieldValue> read_file_field(const ConvertConfig& config, const FieldConfig& field,
                                        const SampleRow& row, const Parameters& parameters, OpenFiles& open) {
  std::vector<InputArray> arrays;
  const std::vector<fs::path> files = files_of(field, row);
  for (const fs::path& file : files) {
    if (file.empty()) throw Error(ExitCode::data, "no output file was handed over for it");
    Selector selector = field.selector;
    selector.stacked = config.stacked && row.row.has_value();
    arrays.push_back(read_input(open.get(file, selector), file, selector, row.row));
  }
  return arrange(field, std::move(arrays), {config.short_form, place_of(files.front(), row), parameters});
}

FieldValue read_parameter_field(const FieldConfig& field, const std::vector<std::string>& columns,
                                const SampleRow& row, const Parameters& parameters) {
  if (field.parameters.empty()) return parameter_field(field, columns, row.parameters, parameters);
  std::vector<double> values;
  for (const std::string& name : field.parameters) {
    const auto at = std::find(columns.begin(), columns.end(), name);
    if (at == columns.end())
      throw Error(ExitCode::spec,
                  fmt::format("the field '{}' needs the column '{}', which is not there", field.name, name));
    values.push_back(row.parameters[static_cast<std::size_t>(at - columns.begin())]);
  }
  return parameter_field(field, field.parameters, values, parameters);
}

}  // namespace

std::vector<FieldValue> read_sample(const ConvertConfig& config, const std::vector<std::string>& columns,
                                    const SampleRow& row) {
  std::vector<FieldValue> values;
  OpenFiles open;
  const Parameters parameters{columns, row.parameters};
  for (const FieldConfig& field : config.fields) {
    if (field.from_parameters) {
      FieldValue value = read_parameter_field(field, columns, row, parameters);
      if (value.form.values() > 0) values.push_back(std::move(value));
      continue;
    }
    for (FieldValue& value : read_file_field(config, field, row, parameters, open))
      values.push_back(std::move(value));
  }
  return values;
}

std::vector<fs::path> sample_files(const ConvertConfig& config, const SampleRow& row) {
  std::vector<fs::path> all;
  for (const FieldConfig& field : config.fields) {
    for (const fs::path& file : files_of(field, row)) {
      if (!file.empty() && std::find(all.begin(), all.end(), file) == all.end()) all.push_back(file);
    }
  }
  return all;
}

}  // namespace wflow::converters
