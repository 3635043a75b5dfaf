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
  if (field.files.empty()) return {row.file.get()};
  std::vector<fs::path> files;
  for (const std::string& name : field.files)
    files.push_back(row.directory.empty() ? fs::path() : row.directory.get() / with_sample_id(name, row.id));
  return files;
}

// Open readers. A reader belongs to a file and the settings for opening it.
class OpenFiles {
 public:
  // Prepares for the files of a row: those of the previous row stay open if they are the same stacked ones.
  void begin(const SampleRow& row) {
    const bool same = row.row && row.file->native() == file_ && row.directory->native() == directory_;
    at_ = 0;
    if (same) return;
    close();
    if (!row.row) return;
    file_ = row.file->native();
    directory_ = row.directory->native();
  }

  // The order of calls is the same for each row.
  InputReader& get(const fs::path& path, const Selector& selector) {
    if (at_ < places_.size()) {
      if (places_[at_].path == path.native()) return *places_[at_++].reader;
      close();  // named by the sample's number
    }
    places_.push_back({path.native(), &find(path, selector)});
    at_ = places_.size();
    return *places_.back().reader;
  }

  void close() {
    places_.clear();
    readers_.clear();
    file_.clear();
    directory_.clear();
  }

 private:
  InputReader& find(const fs::path& path, const Selector& selector) {
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

  struct Place {
    std::string path;
    InputReader* reader;
  };
  std::map<std::string, std::unique_ptr<InputReader>> readers_;
  std::vector<Place> places_;  // in the order of calls
  std::size_t at_ = 0;
  std::string file_, directory_;  // those of the previous row
};

std::vector<FieldValue> read_file_field(const ConvertConfig& config, const FieldConfig& field,
                                        const Selector& selector, const SampleRow& row,
                                        const Parameters& parameters, OpenFiles& open) {
  const std::size_t count = std::max<std::size_t>(1, field.files.size());
  const auto file_of = [&](std::size_t k) {
    if (field.files.empty()) return row.file;
    return SharedPath(row.directory.empty() ? fs::path()
                                            : row.directory.get() / with_sample_id(field.files[k], row.id));
  };
  std::vector<InputArray> arrays;
  arrays.reserve(count);
  const SharedPath first = file_of(0);
  for (std::size_t k = 0; k < count; ++k) {
    const SharedPath file = k == 0 ? first : file_of(k);
    if (file.empty()) throw Error(ExitCode::data, "no output file was handed over for it");
    arrays.push_back(read_input(open.get(file, selector), file, selector, row.row));
  }
  return arrange(field, std::move(arrays), {config.short_form, first, row.row, parameters});
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

// A field of a JSON file, without a path of its own, is the value of its name.
std::string json_path_of(const ConvertConfig& config, const FieldConfig& field) {
  const std::string& file = field.files.empty() ? config.file : field.files.front();
  const bool by_name = field.selector.json.empty() && field.selector.format == Format::automatic &&
                       !config.short_form && fs::path(file).extension() == ".json";
  return by_name ? "/" + field.name : field.selector.json;
}

}  // namespace

struct SampleReader::State {
  const ConvertConfig& config;
  const std::vector<std::string>& columns;
  std::vector<Selector> selectors;  // by field
  OpenFiles open;
};

SampleReader::SampleReader(const ConvertConfig& config, const std::vector<std::string>& columns)
    : state_(std::make_unique<State>(State{config, columns, {}, {}})) {
  for (const FieldConfig& field : config.fields) {
    state_->selectors.push_back(field.selector);
    state_->selectors.back().json = json_path_of(config, field);
  }
}

SampleReader::~SampleReader() = default;
SampleReader::SampleReader(SampleReader&&) noexcept = default;

std::vector<FieldValue> SampleReader::read(const SampleRow& row) {
  if (!row.left_out.empty()) throw Error(ExitCode::data, row.left_out);
  const ConvertConfig& config = state_->config;
  const Parameters parameters{state_->columns, row.parameters};
  std::vector<FieldValue> values;
  values.reserve(config.fields.size());
  state_->open.begin(row);
  for (std::size_t k = 0; k < config.fields.size(); ++k) {
    const FieldConfig& field = config.fields[k];
    if (field.from_parameters) {
      FieldValue value = read_parameter_field(field, state_->columns, row, parameters);
      if (value.form.values() > 0) values.push_back(std::move(value));
      continue;
    }
    Selector& selector = state_->selectors[k];
    selector.stacked = config.stacked && row.row;
    for (FieldValue& value : read_file_field(config, field, selector, row, parameters, state_->open))
      values.push_back(std::move(value));
  }
  if (!row.row) state_->open.close();
  return values;
}

std::vector<fs::path> sample_files(const ConvertConfig& config, const SampleRow& row) {
  std::vector<fs::path> all;
  if (!row.left_out.empty()) return all;
  for (const FieldConfig& field : config.fields) {
    for (const fs::path& file : files_of(field, row)) {
      if (!file.empty() && std::find(all.begin(), all.end(), file) == all.end()) all.push_back(file);
    }
  }
  return all;
}

}  // namespace wflow::converters
