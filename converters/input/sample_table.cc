// SPDX-License-Identifier: Apache-2.0
#include "converters/input/sample_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/csv.h"
#include "base/error.h"
#include "base/text.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

struct Columns {
  std::size_t file = 0;
  std::optional<std::size_t> id, row;
  std::vector<std::size_t> targets;
};

std::vector<std::string> other_columns(const csv::Reader& reader, bool stacked) {
  std::vector<std::string> names;
  for (const auto& name : reader.header()) {
    if (name != "file" && name != "id" && !(stacked && name == "row")) names.push_back(name);
  }
  return names;
}

std::size_t required_column(const csv::Reader& reader, const std::string& name) {
  if (const auto column = reader.column(name)) return *column;
  reader.fail(fmt::format("there is no column '{}'{}", name, text::suggestion(name, reader.header())));
}

Columns find_columns(const csv::Reader& reader, const std::vector<std::string>& labels, Numbering numbering,
                     bool stacked) {
  Columns columns{required_column(reader, "file"), reader.column("id"), {}, {}};
  if (stacked) columns.row = required_column(reader, "row");
  if (numbering == Numbering::by_id) columns.id = required_column(reader, "id");
  for (const auto& label : labels) columns.targets.push_back(required_column(reader, label));
  return columns;
}

SampleRow make_row(const csv::Reader& reader, const Columns& columns, const std::vector<std::string>& fields,
                   const fs::path& folder, std::size_t place) {
  SampleRow row;
  row.id = static_cast<std::int64_t>(place);
  if (columns.id) {
    const auto id = text::to_integer(fields[*columns.id]);
    if (!id || *id < 0)
      reader.fail(fmt::format("the id '{}' is not a whole number from 0", fields[*columns.id]));
    row.id = *id;
  }
  if (fields[columns.file].empty()) reader.fail("the column 'file' is empty");
  row.file = folder / fields[columns.file];
  if (columns.row) {
    const auto number = text::to_integer(fields[*columns.row]);
    if (!number || *number < 0)
      reader.fail(fmt::format("the row '{}' is not a whole number from 0", fields[*columns.row]));
    row.row = static_cast<std::uint64_t>(*number);
  }
  for (const std::size_t column : columns.targets) {
    const auto value = text::to_real(fields[column]);
    if (!value)
      reader.fail(
          fmt::format("'{}' in column '{}' is not a number", fields[column], reader.header()[column]));
    row.targets.push_back(*value);
  }
  return row;
}

}  // namespace

SampleTable read_sample_table(const fs::path& path, const std::vector<std::string>& targets,
                              Numbering numbering, bool stacked) {
  csv::Reader reader(path);
  SampleTable table{targets.empty() ? other_columns(reader, stacked) : targets, {}};
  const Columns columns = find_columns(reader, table.labels, numbering, stacked);
  std::vector<std::string> fields;
  while (reader.next(fields))
    table.rows.push_back(make_row(reader, columns, fields, path.parent_path(), table.rows.size()));
  if (table.rows.empty()) throw Error(ExitCode::data, fmt::format("{} has no rows", path.string()));
  std::sort(table.rows.begin(), table.rows.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    if (i > 0 && table.rows[i].id == table.rows[i - 1].id) {
      throw Error(ExitCode::data, fmt::format("{} has the id {} twice", path.string(), table.rows[i].id));
    }
    table.rows[i].number = numbering == Numbering::by_id ? static_cast<std::uint64_t>(table.rows[i].id) : i;
  }
  return table;
}

}  // namespace wflow::converters
