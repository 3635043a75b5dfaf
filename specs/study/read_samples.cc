// SPDX-License-Identifier: Apache-2.0
// samples: wflow's at top level, and Merlin's below merlin:.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "base/config_table.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace fs = std::filesystem;

namespace {

std::string copy_name(const fs::path& file, std::size_t part) {
  return part == 0 ? file.filename().string()
                   : fmt::format("{}.part{}{}", file.stem().string(), part + 1, file.extension().string());
}

}  // namespace

std::vector<SampleFile> sample_files(const SampleDesign& design) {
  if (design.kind == DesignKind::file) return {{design.file, copy_name(design.file, 0)}};
  std::vector<SampleFile> files;
  for (std::size_t i = 0; i < design.parts.size(); ++i) {
    if (design.parts[i].kind == DesignKind::file)
      files.push_back({design.parts[i].file, copy_name(design.parts[i].file, i)});
  }
  return files;
}

namespace {

using config::custom;
using yaml::MapReader;

const std::array<std::string, 7> kDesigns = {"uniform", "latin_hypercube", "sobol", "halton", "grid", "list",
                                             "file"};
// A Sobol point is a number of 52 bits; far more than any campaign needs.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 48;
constexpr std::int64_t kMostPoints = 100'000;

// The keys of samples:, or of one of its list of designs.
struct SamplesBlock : Samples {
  Reading* reading = nullptr;
  bool ours = true;                 // not Merlin's
  bool bare = false;                // a count alone: no columns
  std::optional<std::size_t> part;  // its index in a list of designs, which have one directory tree
  std::vector<yaml::Mark> marks;    // one for each column

  SamplesBlock() { design.kind = DesignKind::uniform; }
  // --samplesfile takes the place of the table.
  bool is_overridden() const { return !reading->options.samples_file.empty(); }
};

constexpr auto is_ours = [](const SamplesBlock& block) { return block.ours; };
constexpr auto is_file = [](const SamplesBlock& block) { return block.design.kind == DesignKind::file; };
constexpr auto is_list = [](const SamplesBlock& block) { return block.design.kind == DesignKind::list; };
constexpr auto is_box = [](const SamplesBlock& block) { return block.design.kind <= DesignKind::grid; };
constexpr auto is_random = [](const SamplesBlock& block) { return block.design.kind < DesignKind::grid; };

void add_column(SamplesBlock& block, const yaml::Node& name) {
  SampleColumn column;
  column.name = value_text(name);
  block.design.columns.push_back(std::move(column));
  block.marks.push_back(name.mark);
}

// The same columns, in the same order.
void replace_design_by_file(MapReader& reader, SamplesBlock& block) {
  for (const char* key : {"count", "seed", "values"}) reader.find(key);
  if (const yaml::Node* parameters = reader.find("parameters")) {
    for (const auto& [key, value] : parameters->entries) add_column(block, key);
  }
  if (const yaml::Node* columns = reader.find("columns")) {
    for (const yaml::Node& item : columns->items) add_column(block, item);
  }
  block.design.kind = DesignKind::file;
}

void read_design(MapReader& reader, std::string_view key, SamplesBlock& block) {
  if (reader.has(key)) {
    block.design.kind = static_cast<DesignKind>(reader.choice(key, 0, kDesigns));
    block.design.count = is_random(block) ? 1 : 0;
    if (block.is_overridden() && !is_file(block)) replace_design_by_file(reader, block);
  } else if (reader.has("count") && !reader.has("parameters")) {
    block.design.kind = DesignKind::uniform;  // rows that differ by their number alone
    block.design.count = 1;
    block.bare = true;
  } else if (!reader.has("file") && !block.is_overridden()) {
    reader.diagnostics().error(reader.node().mark, "the samples: block needs the key 'design' (" +
                                                       text::join(kDesigns, ", ") + ") or 'file'");
    block.design.kind = DesignKind::parts;  // without keys of its own
  }
}

void read_table_file(MapReader& reader, std::string_view key, SamplesBlock& block) {
  const bool is_given = reader.has(key);
  if (!is_file(block)) return;
  if (!block.is_overridden() && !is_given) {
    reader.required(key);
    return;
  }
  const std::string written = reader.string(key);
  const Reading& reading = *block.reading;
  block.design.file = block.is_overridden() ? caller_directory(reading.options) / reading.options.samples_file
                                            : locate(reading.study, written);
  block.design.file = block.design.file.lexically_normal();
}

void read_column_labels(MapReader& reader, std::string_view key, SamplesBlock& block) {
  const yaml::Node* labels = reader.find(key);
  if (block.design.file.empty()) return;
  if (!block.ours) reader.required(key);
  for (const yaml::Node& item : items_of(labels)) add_column(block, item);
}

// For a table that replaces a design: a first row with the columns' names is not a sample.
bool first_row_names_columns(const SamplesBlock& block) {
  SampleDesign table;
  table.kind = DesignKind::file;
  table.file = block.design.file;
  table.header = true;
  try {
    return open_samples(table)->columns() == column_names(block.design);
  } catch (const Error&) {
    return false;  // open_table() reports the error
  }
}

void read_header(MapReader& reader, std::string_view key, SamplesBlock& block) {
  SampleDesign& design = block.design;
  reader.find(key);
  if (design.file.empty()) return;
  const bool is_text = text::lower(design.file.extension().string()) != ".npy";
  const bool is_unnamed = design.columns.empty() || (block.is_overridden() && first_row_names_columns(block));
  design.header = reader.boolean(key, is_text && is_unnamed);
}

const config::Table<SamplesBlock>& generate_table() {
  static const config::Table<SamplesBlock> table(
      "the generate: block", {config::required_text<SamplesBlock>("cmd", &Samples::generate_command,
                                                                  "run once, when the campaign is made")});
  return table;
}

void read_generate(MapReader& reader, std::string_view key, SamplesBlock& block) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr || block.design.file.empty()) return;
  if (block.part) {
    reader.diagnostics().error(reader.mark_of(key), "'generate' is for a samples: block of one design");
  } else if (block.ours) {
    generate_table().read(*node, block, reader.diagnostics());
  } else {  // Merlin's own copies of a study have an empty block
    MapReader inner(*node, generate_table().where(), reader.diagnostics());
    block.generate_command = inner.string("cmd");
    inner.finish();
  }
  if (block.is_overridden()) block.generate_command.clear();
}

// A resumed campaign reads the table it started with, even if the original has changed.
void use_campaigns_copy(SamplesBlock& block) {
  SampleDesign& design = block.design;
  const ReadOptions& options = block.reading->options;
  std::error_code none;
  if (options.campaign.empty()) return;
  if (options.fresh_samples && fs::exists(design.file, none)) return;
  const fs::path campaign = absolute_path(options.campaign);
  const std::string name = copy_name(design.file, block.part.value_or(0));
  const auto known = options.table_checksums.find(name);
  if (known != options.table_checksums.end()) design.checksum = known->second;
  std::vector<fs::path> there;
  for (const fs::path& file :
       {options.version_folder / kSamplesFolder / name, campaign / "merlin_info" / name, design.file}) {
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) there.push_back(file);
  }
  if (there.empty()) return;
  const auto whole = std::find_if(there.begin(), there.end(), [&](const fs::path& file) {
    return design.checksum.empty() || hash_file(file) == design.checksum;
  });
  // The first of several damaged tables, which open_samples() refuses.
  design.file = whole == there.end() ? there.front() : *whole;
}

void open_table(MapReader& reader, SamplesBlock& block) {
  SampleDesign& design = block.design;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const yaml::Mark mark = block.is_overridden() ? reader.node().mark : reader.mark_of("file");
  use_campaigns_copy(block);
  std::error_code ignored;
  if (!block.generate_command.empty() && !fs::exists(design.file, ignored)) return;
  try {
    const auto table = open_samples(design);
    const auto& found = table->columns();
    design.count = table->count();
    const bool named = !design.columns.empty();
    if (named && found.size() != design.columns.size()) {
      const std::string message = fmt::format("{} has {} columns, column_labels has {}", design.file.string(),
                                              found.size(), design.columns.size());
      // Merlin continues with the columns that have a name.
      block.ours ? diagnostics.error(mark, message) : diagnostics.unknown_key(mark, message);
      if (design.columns.size() > found.size()) design.columns.resize(found.size());
    }
    if (!named) {
      for (const std::string& name : found) {
        design.columns.push_back({name, 0, 1, false, false, {}});
        block.marks.push_back(mark);
      }
    }
  } catch (const Error& problem) {
    diagnostics.error(mark, problem.what());
  }
}

void read_rows(MapReader& reader, std::string_view key, SamplesBlock& block) {
  const yaml::Node* columns = reader.find("columns");
  const yaml::Node* values = reader.find(key);
  SampleDesign& design = block.design;
  if (columns == nullptr || values == nullptr) return;
  for (const yaml::Node& item : items_of(columns)) add_column(block, item);
  if (!values->is_sequence() || values->items.empty()) {
    reader.diagnostics().error(
        values->mark,
        "'values' must be a list of rows such as [[1, 2], [3, 4]], found " + values->describe());
    return;
  }
  for (const yaml::Node& row : values->items) {
    const std::vector<yaml::Node> cells = items_of(&row);
    if (cells.size() != design.columns.size()) {
      reader.diagnostics().error(row.mark,
                                 fmt::format("this row has {} value{}, there are {} columns", cells.size(),
                                             cells.size() == 1 ? "" : "s", design.columns.size()));
      continue;
    }
    for (std::size_t i = 0; i < cells.size(); ++i) design.columns[i].values.push_back(value_text(cells[i]));
  }
  design.count = values->items.size();
}

// A sampled parameter as a mapping.
struct RangeBlock : SampleColumn {
  bool is_grid = false;
  std::int64_t points = 2;
};

void check_range(const SampleColumn& column, const yaml::Mark& mark, yaml::Diagnostics& diagnostics) {
  const auto& [name, low, high, log, integer, values] = column;
  if (!(low < high)) {
    diagnostics.error(mark, fmt::format("'{}' must have low < high, found {} and {}", name, low, high));
  } else if (log && low <= 0) {
    diagnostics.error(mark, fmt::format("'{}' is logarithmic and must have low > 0, found {}", name, low));
  } else if (integer && (low != std::floor(low) || high != std::floor(high) || std::abs(low) > 1e15 ||
                         std::abs(high) > 1e15)) {
    diagnostics.error(
        mark, fmt::format("'{}' is integer and must have whole bounds, found {} and {}", name, low, high));
  } else if (integer && log) {
    diagnostics.error(mark, fmt::format("'{}' can't be integer and log at once", name));
  }
}

const config::Table<RangeBlock>& range_table() {
  static const config::Table<RangeBlock> table(
      "a sample parameter",
      {config::real<RangeBlock>("low", &SampleColumn::low, -1e300, 1e300, "the least value")
           .required()
           .then([](MapReader&, RangeBlock& range) { range.high = range.low + 1; }),
       config::real<RangeBlock>("high", &SampleColumn::high, -1e300, 1e300, "the largest value").required(),
       config::boolean<RangeBlock>("log", &SampleColumn::log, "uniform in the logarithm"),
       config::boolean<RangeBlock>("integer", &SampleColumn::integer, "whole numbers")
           .then([](MapReader& reader, RangeBlock& range) {
             if (reader.has("low") && reader.has("high"))
               check_range(range, reader.node().mark, reader.diagnostics());
           }),
       config::integer("points", &RangeBlock::points, 1, kMostPoints,
                       "`grid`: number of values, both ends included")
           .required()
           .only_if([](const RangeBlock& range) { return range.is_grid; })});
  return table;
}

std::vector<std::string> grid_points(const RangeBlock& range) {
  std::vector<std::string> values;
  for (std::int64_t i = 0; i < range.points; ++i) {
    const double u = range.points == 1 ? 0 : static_cast<double>(i) / static_cast<double>(range.points - 1);
    double value = range.log
                       ? std::exp(std::log(range.low) + u * (std::log(range.high) - std::log(range.low)))
                       : range.low + u * (range.high - range.low);
    if (i == 0) value = range.low;
    if (i > 0 && i == range.points - 1) value = range.high;
    values.push_back(text::from_real(range.integer ? std::round(value) : value));
  }
  return values;
}

void read_range(SampleColumn& column, const yaml::Node& value, bool is_grid, yaml::Diagnostics& diagnostics) {
  RangeBlock range;
  range.name = column.name;
  range.is_grid = is_grid;
  range_table().read(value, range, diagnostics, fmt::format("the sample parameter '{}'", column.name));
  column = static_cast<const SampleColumn&>(range);
  if (is_grid) column.values = grid_points(range);
}

void read_pair(SampleColumn& column, const yaml::Node& value, yaml::Diagnostics& diagnostics) {
  if (!value.is_sequence() || value.items.size() != 2) {
    diagnostics.error(
        value.mark, fmt::format("'{}' must be [low, high] or {{low: ..., high: ...}}, found {}", column.name,
                                value.is_sequence() ? fmt::format("a list of {}", value.items.size())
                                                    : value.describe()));
    return;
  }
  const auto low = yaml::as_real(value.items[0], column.name, diagnostics);
  const auto high = yaml::as_real(value.items[1], column.name, diagnostics);
  if (!low || !high) return;
  column.low = *low;
  column.high = *high;
  check_range(column, value.mark, diagnostics);
}

void read_grid_values(SampleColumn& column, const yaml::Node& value, yaml::Diagnostics& diagnostics) {
  if (!value.is_sequence() || value.items.empty()) {
    diagnostics.error(
        value.mark,
        fmt::format("'{}' must be a list of values or {{low: ..., high: ..., points: ...}}, found {}",
                    column.name, value.describe()));
    return;
  }
  for (const yaml::Node& item : value.items) column.values.push_back(value_text(item));
}

void count_grid(SampleDesign& design, const yaml::Mark& mark, yaml::Diagnostics& diagnostics) {
  std::uint64_t count = 1;
  for (const SampleColumn& column : design.columns) {
    if (column.values.empty()) return;
    if (count > static_cast<std::uint64_t>(kMaxCount) / column.values.size()) {
      diagnostics.error(mark, "the grid has more than 2^48 points");
      return;
    }
    count *= column.values.size();
  }
  design.count = count;
}

void read_box(MapReader& reader, std::string_view key, SamplesBlock& block) {
  const yaml::Node* parameters = reader.find(key);
  if (parameters == nullptr) return;
  SampleDesign& design = block.design;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const bool is_grid = design.kind == DesignKind::grid;
  const MapReader list(*parameters, "samples: parameters:", diagnostics);
  for (const auto& [name, value] : list.node().entries) {
    add_column(block, name);
    SampleColumn& column = design.columns.back();
    if (value.is_map()) {
      read_range(column, value, is_grid, diagnostics);
    } else if (is_grid) {
      read_grid_values(column, value, diagnostics);
    } else {
      read_pair(column, value, diagnostics);
    }
  }
  if (design.columns.empty()) diagnostics.error(parameters->mark, "samples: parameters: names no parameter");
  if (design.kind == DesignKind::sobol && design.columns.size() > Sobol::kMaxDimensions) {
    diagnostics.error(
        parameters->mark,
        fmt::format("the sobol design has {} parameters at most, found {}; take latin_hypercube",
                    Sobol::kMaxDimensions, design.columns.size()));
  }
  if (is_grid) count_grid(design, parameters->mark, diagnostics);
}

config::Key<SamplesBlock> of_design(const config::Key<SampleDesign>& key) {
  return config::of_part<SamplesBlock>(key, &SamplesBlock::design);
}

const config::Table<SamplesBlock>& samples_table() {
  const config::Json names = config::one_or_list_schema(config::text_schema());
  const config::Json list = {{"type", "array"}, {"minItems", 1}};
  static const config::Table<SamplesBlock> table(
      "the samples: block",
      {custom<SamplesBlock>("design", config::choice_schema(kDesigns),
                            "`uniform`, `latin_hypercube`, `sobol`, `halton`, `grid`, `list`, `file`",
                            read_design)
           .usually("`file`, if that is given")
           .only_if(is_ours),
       of_design(
           config::integer("count", &SampleDesign::count, 1, kMaxCount,
                           "number of rows: for `uniform`, `latin_hypercube`, `sobol`, `halton`. Alone, "
                           "without `design` and `parameters`: samples that differ by their number"))
           .required()
           .only_if(is_random),
       of_design(config::integer(
                     "seed", &SampleDesign::seed, 0, INT64_MAX,
                     "seed of the random numbers. For `sobol` and `halton`, 0 is the plain sequence (GSL's, "
                     "without the origin); any other seed shifts it randomly"))
           .only_if(is_box),
       custom<SamplesBlock>(
           "parameters",
           {{"type", "object"}, {"additionalProperties", config::any_of({list, range_table().schema()})}},
           "the sampled parameters by name, for all designs but `list` and `file`: `[low, high]` or `{low, "
           "high, log, integer}`; for `grid`, a list of values or `{low, high, points, log}`",
           read_box)
           .required()
           .only_if([](const SamplesBlock& block) { return is_box(block) && !block.bare; }),
       custom<SamplesBlock>("columns", names, "`list`: the names of the columns").required().only_if(is_list),
       custom<SamplesBlock>("values", list, "`list`: the rows", read_rows).required().only_if(is_list),
       custom<SamplesBlock>(
           "file", config::text_schema(),
           "`file`: `.csv`, `.tab` (blanks between cells), `.tsv` (tabs; no comments), `.lines` (each line "
           "is one cell) or `.npy` (numbers or text, one or two axes)",
           read_table_file),
       custom<SamplesBlock>("column_labels", names, "`file`: the names of the columns", read_column_labels)
           .usually("the first row of a `.csv` or `.tab`")
           .only_if(is_file),
       custom<SamplesBlock>("header", config::boolean_schema(),
                            "`file`: the first row of a `.csv` or `.tab` has the columns' names", read_header)
           .usually("`true` without `column_labels`")
           .only_if([](const SamplesBlock& block) {
             return is_file(block) && (block.ours || block.design.file.empty());
           }),
       custom<SamplesBlock>(
           "generate", generate_table().schema(),
           "`file`: `{cmd: COMMAND}`, a command that writes `file`. wflow runs it once, when it creates the "
           "campaign, if `file` does not exist yet; `wflow resume --update` runs it again if the command has "
           "changed",
           read_generate)
           .only_if(is_file),
       config::integer<SamplesBlock, std::uint32_t>("level_max_dirs", &Samples::level_max_dirs, 2, 1'000'000,
                                                    "directories in each level of the sample tree")
           .only_if([](const SamplesBlock& block) { return block.part.value_or(0) == 0; })});
  return table;
}

void check_column_names(const MapReader& reader, const SamplesBlock& block) {
  const Reading& reading = *block.reading;
  const auto& reserved = reserved_names();
  std::set<std::string> seen;
  for (std::size_t i = 0; i < block.design.columns.size(); ++i) {
    const std::string& name = block.design.columns[i].name;
    const auto same = [&name](const Parameter& parameter) { return parameter.name == name; };
    std::string problem;
    if (text::trim(name).empty()) {
      problem = fmt::format("the sample column {} has no name", i + 1);
    } else if (!seen.insert(name).second) {
      problem = fmt::format("the sample column '{}' stands here twice", name);
    } else if (std::ranges::any_of(reading.study.parameters, same)) {
      problem = fmt::format("the sample column '{}' has the name of a parameter", name);
    } else if (reading.values.contains(name)) {
      problem = fmt::format("the sample column '{}' has the name of a variable", name);
    } else if (std::ranges::find(reserved, name) != reserved.end()) {
      problem = fmt::format("the sample column '{}' is a reserved word", name);
    }
    if (!problem.empty())
      reading.diagnostics.error(i < block.marks.size() ? block.marks[i] : reader.node().mark, problem);
  }
}

Samples read_block(Reading& reading, const yaml::Node& node, bool ours,
                   std::optional<std::size_t> part = {}) {
  MapReader reader(node,
                   part ? fmt::format("the {}. design of samples:", *part + 1) : samples_table().where(),
                   reading.diagnostics);
  SamplesBlock block;
  block.reading = &reading;
  block.ours = ours;
  block.part = part;
  block.mark = node.mark;
  block.layout = reading.options.layout_samples;
  block.design.kind = DesignKind::file;
  samples_table().read_keys(reader, block);
  if (block.design.kind == DesignKind::parts) {
    replace_design_by_file(reader, block);  // so that the steps know the columns
  } else {
    if (!block.design.file.empty()) open_table(reader, block);
    reader.finish();
    check_column_names(reader, block);
  }
  return static_cast<const Samples&>(block);
}

// samples: [A, B]: the rows of A, then those of B.
Samples read_parts(Reading& reading, const yaml::Node& list) {
  Samples all;
  all.mark = list.mark;
  all.layout = reading.options.layout_samples;
  all.design.kind = DesignKind::parts;
  if (list.items.empty()) {
    reading.diagnostics.error(list.mark, "samples: is an empty list; it needs a design");
    return all;
  }
  if (!reading.options.samples_file.empty())
    reading.diagnostics.error(list.mark,
                              "a table in place of the samples goes with one design, not with a list");
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const Samples part = read_block(reading, list.items[i], true, i);
    if (i == 0) {
      all.level_max_dirs = part.level_max_dirs;
      all.design.columns = part.design.columns;
    } else if (column_names(part.design) != column_names(all.design)) {
      reading.diagnostics.error(list.items[i].mark,
                                fmt::format("the designs of samples: must have the same columns in the same "
                                            "order: this one has {}, the first {}",
                                            text::join(column_names(part.design), ", "),
                                            text::join(column_names(all.design), ", ")));
    }
    all.design.count += part.design.count;
    all.design.parts.push_back(part.design);
  }
  return all;
}

// A grown Latin hypercube is a Latin hypercube only if all its strata are divided into the same number.
void grow_latin(Reading& reading, const Samples& samples, SampleDesign& design, std::uint64_t first) {
  std::uint64_t before = 0;
  for (const std::uint64_t count : reading.options.grown) {
    if (count > first && count - first < design.count) design.grown.push_back(count - first);
  }
  std::vector<std::uint64_t> counts = design.grown;
  counts.push_back(design.count);
  for (const std::uint64_t count : counts) {
    if (before > 0 && count % before != 0) {
      reading.diagnostics.error(
          samples.mark,
          fmt::format(
              "a Latin hypercube of {0} samples grows to a multiple of {0}, such as {1}, found {2}: only "
              "then are old and new samples together a Latin hypercube",
              before, 2 * before, count));
      design.grown.clear();
      return;
    }
    before = count;
  }
}

// The counts that the campaign had before: a row never depends on a later one.
void set_grown(Reading& reading, Samples& samples) {
  SampleDesign& design = samples.design;
  for (const std::uint64_t count : reading.options.grown) {
    if (count < design.count) design.grown.push_back(count);
  }
  if (design.kind == DesignKind::latin_hypercube) {
    design.grown.clear();
    grow_latin(reading, samples, design, 0);
  }
  if (design.kind != DesignKind::parts || design.parts.empty()) return;
  SampleDesign& last = design.parts.back();
  if (last.kind == DesignKind::latin_hypercube) grow_latin(reading, samples, last, design.count - last.count);
}

// With --samplesfile, the copies of the study name the campaign's copy of the table, so that running one of
// them takes the same samples.
void name_samples_file(Reading& reading, yaml::Node& root, bool ours) {
  yaml::Node* home = ours ? &root : root.find("merlin");
  yaml::Node* block = home == nullptr ? nullptr : home->find("samples");
  if (block == nullptr || !block->is_map()) return;
  const SampleDesign& design = reading.study.samples->design;
  const yaml::Node* kind = block->find("design");
  if (kind != nullptr && kind->text != name_of(DesignKind::file)) {
    for (const char* key : {"design", "count", "seed", "parameters", "columns", "values"})
      remove_key(*block, key);
    std::vector<yaml::Node> labels;
    for (const SampleColumn& column : design.columns) labels.push_back(yaml::quoted(column.name));
    set_key(*block, "column_labels", yaml::sequence(std::move(labels)));
  }
  const auto copy = std::filesystem::path(reading.values.at("MERLIN_INFO")) / design.file.filename();
  set_key(*block, "file", yaml::quoted(copy.string()));
  if (ours) {
    remove_key(*block, "generate");
  } else {
    set_key(*block, "generate", yaml::map({{"cmd", yaml::quoted("")}}));
  }
}

}  // namespace

BlockTables samples_tables() {
  const auto key = [](const char* name) { return samples_table().key(name); };
  const config::Table<SamplesBlock> merlins(
      "", {key("file").required(), key("column_labels").only_if({}).required(), key("generate"),
           key("level_max_dirs")});
  return {{{"samples", config::or_null(samples_table().schema())}, {"merlin_samples", merlins.schema()}},
          {{"samples", samples_table().rows()}, {"samples.parameters", range_table().rows()}}};
}

void read_samples(Reading& reading) {
  const yaml::Node* ours = reading.root.find("samples");
  const yaml::Node* merlin = reading.root.find("merlin");
  const yaml::Node* merlins = merlin == nullptr ? nullptr : merlin->find("samples");
  if (ours != nullptr && ours->is_null()) ours = nullptr;
  if (merlins != nullptr && merlins->is_null()) merlins = nullptr;
  if (ours != nullptr && merlins != nullptr) {
    reading.diagnostics.error(merlins->mark, "samples stand here and at top level; one of them must go");
    merlins = nullptr;
  }
  if (ours != nullptr) {
    reading.study.samples =
        ours->is_sequence() ? read_parts(reading, *ours) : read_block(reading, *ours, true);
  }
  if (merlins != nullptr) reading.study.samples = read_block(reading, *merlins, false);
  if (reading.study.samples) set_grown(reading, *reading.study.samples);
  if (reading.options.samples_file.empty() || !reading.study.samples) return;
  for (yaml::Node* tree : {&reading.study.partial, &reading.root})
    name_samples_file(reading, *tree, ours != nullptr);
}

}  // namespace wflow::specs
