// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/csv.h"
#include "base/error.h"
#include "base/text.h"
#include "converters/input/sample.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

struct Columns {
  std::optional<std::size_t> file, directory, id, row, left_out, group, stratum;
  std::vector<std::size_t> parameters;
  bool shared_folder = false;  // samples' files differ by their number, not by their folder
};

std::vector<std::string> other_columns(const csv::Reader& reader, const ConvertConfig& config) {
  std::vector<std::string> names;
  for (const auto& name : reader.header()) {
    const bool ours = name == "file" || name == "id" || name == kLeftOutColumn ||
                      (config.stacked && name == "row") || (!config.short_form && name == "directory") ||
                      name == config.split.group_by ||
                      (name == config.split.stratify_by && config.split.stratify_edges.empty());
    if (!ours) names.push_back(name);
  }
  return names;
}

std::size_t required_column(const csv::Reader& reader, const std::string& name) {
  if (const auto column = reader.column(name)) return *column;
  reader.fail(fmt::format("there is no column '{}'{}", name, text::suggestion(name, reader.header())));
}

Columns find_columns(const csv::Reader& reader, const std::vector<std::string>& parameters,
                     const ConvertConfig& config, Numbering numbering) {
  Columns columns;
  columns.file = reader.column("file");
  if (!config.short_form) columns.directory = reader.column("directory");
  columns.id = reader.column("id");
  columns.left_out = reader.column(std::string(kLeftOutColumn));
  const auto is_own = [](const FieldConfig& f) { return !f.from_parameters && f.files.empty(); };
  const auto is_named = [](const FieldConfig& f) { return !f.files.empty(); };
  if (std::any_of(config.fields.begin(), config.fields.end(), is_own))
    columns.file = required_column(reader, "file");
  if (std::any_of(config.fields.begin(), config.fields.end(), is_named) && !columns.directory &&
      !columns.file) {
    reader.fail(
        "there is no column 'directory', the folder in which the files of the fields lie (nor 'file', whose "
        "folder it could be)");
  }
  for (const FieldConfig& field : config.fields) {
    for (const std::string& name : field.files)
      columns.shared_folder |= name.find("$(MERLIN_SAMPLE_ID)") != std::string::npos;
  }
  if (config.stacked) columns.row = required_column(reader, "row");
  if (numbering == Numbering::by_id) columns.id = required_column(reader, "id");
  if (!config.split.group_by.empty()) columns.group = required_column(reader, config.split.group_by);
  if (!config.split.stratify_by.empty()) columns.stratum = required_column(reader, config.split.stratify_by);
  for (const auto& name : parameters) columns.parameters.push_back(required_column(reader, name));
  return columns;
}

// The identity of a sample, independent of its place in the table.
std::string identity_text(const Columns& columns, const std::vector<std::string>& fields,
                          const SampleRow& row) {
  if (columns.group) return fields[*columns.group];
  const auto place = columns.directory ? columns.directory : columns.file;
  if (columns.id || columns.shared_folder || !place) return std::to_string(row.id);
  return columns.row ? fields[*place] + "," + fields[*columns.row] : fields[*place];
}

// The value as written, or the interval that contains it.
std::uint64_t stratum_of(const csv::Reader& reader, const SplitRequest& split, const std::string& cell) {
  if (split.stratify_edges.empty()) return identity_of(cell);
  const auto value = text::to_real(cell);
  if (!value) reader.fail(fmt::format("'{}' in column '{}' is not a number", cell, split.stratify_by));
  const auto above = std::upper_bound(split.stratify_edges.begin(), split.stratify_edges.end(), *value);
  return static_cast<std::uint64_t>(above - split.stratify_edges.begin());
}

// The paths of the rows of a table; equal neighbours share one path.
class RowPaths {
 public:
  explicit RowPaths(fs::path folder) : folder_(std::move(folder)) {}
  void set_file(const std::string& cell, SampleRow& row) {
    if (file_.empty() || cell != file_cell_) {
      file_cell_ = cell;
      file_ = folder_ / cell;
      parent_ = file_->parent_path();
    }
    row.file = file_;
    row.directory = parent_;
  }
  void set_directory(const std::string& cell, SampleRow& row) {
    if (directory_.empty() || cell != directory_cell_) {
      directory_cell_ = cell;
      directory_ = folder_ / cell;
    }
    row.directory = directory_;
  }

 private:
  fs::path folder_;
  std::string file_cell_, directory_cell_;
  SharedPath file_, parent_, directory_;
};

SampleRow make_row(const csv::Reader& reader, const Columns& columns, const std::vector<std::string>& fields,
                   RowPaths& paths, std::size_t place, const SplitRequest& split) {
  SampleRow row;
  row.id = static_cast<std::int64_t>(place);
  if (columns.id) {
    const auto id = text::to_integer(fields[*columns.id]);
    if (!id || *id < 0)
      reader.fail(fmt::format("the id '{}' is not a whole number from 0", fields[*columns.id]));
    row.id = *id;
  }
  if (columns.file) {
    if (fields[*columns.file].empty()) reader.fail("the column 'file' is empty");
    paths.set_file(fields[*columns.file], row);
  }
  if (columns.directory) {
    if (fields[*columns.directory].empty()) reader.fail("the column 'directory' is empty");
    paths.set_directory(fields[*columns.directory], row);
  }
  if (columns.row) {
    const auto number = text::to_integer(fields[*columns.row]);
    if (!number || *number < 0)
      reader.fail(fmt::format("the row '{}' is not a whole number from 0", fields[*columns.row]));
    row.row = static_cast<std::uint64_t>(*number);
  }
  row.identity = identity_of(identity_text(columns, fields, row));
  if (columns.left_out) row.left_out = fields[*columns.left_out];
  if (columns.stratum) row.stratum = stratum_of(reader, split, fields[*columns.stratum]);
  row.parameters.reserve(columns.parameters.size());
  for (const std::size_t column : columns.parameters) {
    const auto value = text::to_real(fields[column]);
    if (!value)
      reader.fail(
          fmt::format("'{}' in column '{}' is not a number", fields[column], reader.header()[column]));
    row.parameters.push_back(*value);
  }
  return row;
}

}  // namespace

SampleTable read_sample_table(const fs::path& path, const ConvertConfig& config, Numbering numbering) {
  csv::Reader reader(path);
  SampleTable table{parameter_columns(config).value_or(other_columns(reader, config)), {}, false};
  const Columns columns = find_columns(reader, table.columns, config, numbering);
  table.has_ids = columns.id.has_value();
  std::vector<std::string> fields;
  RowPaths paths(path.parent_path());
  while (reader.next(fields))
    table.rows.push_back(make_row(reader, columns, fields, paths, table.rows.size(), config.split));
  if (table.rows.empty()) throw Error(ExitCode::data, fmt::format("{} has no rows", path.string()));
  const auto by_id = [](const SampleRow& a, const SampleRow& b) { return a.id < b.id; };
  if (!std::is_sorted(table.rows.begin(), table.rows.end(), by_id))
    std::sort(table.rows.begin(), table.rows.end(), by_id);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    if (i > 0 && table.rows[i].id == table.rows[i - 1].id) {
      throw Error(ExitCode::data, fmt::format("{} has the id {} twice", path.string(), table.rows[i].id));
    }
    table.rows[i].number = numbering == Numbering::by_id ? static_cast<std::uint64_t>(table.rows[i].id) : i;
  }
  return table;
}

}  // namespace wflow::converters
