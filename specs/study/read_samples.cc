// SPDX-License-Identifier: Apache-2.0
// samples: wflow's at top level, and Merlin's below merlin:.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "specs/samples/tables.h"
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

const std::array<std::string, 7> kDesigns = {"uniform", "latin_hypercube", "sobol", "halton", "grid", "list",
                                             "file"};
constexpr std::uint32_t kUsualLevelDirectories = 25;
// A Sobol point is a number of 52 bits; far more than any campaign needs.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 48;

class SamplesReader {
 public:
  // `part`: its index in a list of designs, which have no directory tree of their own; else nothing.
  SamplesReader(Reading& reading, const yaml::Node& node, bool ours, std::optional<std::size_t> part = {})
      : reading_(reading), ours_(ours), part_(part), block_(node, name(part), reading.diagnostics) {}

  Samples read() {
    samples_.mark = block_.node().mark;
    samples_.layout = reading_.options.layout_samples;
    if (part_.value_or(0) == 0) {
      samples_.level_max_dirs =
          static_cast<std::uint32_t>(block_.integer("level_max_dirs", kUsualLevelDirectories, 2, 1'000'000));
    }
    const bool file_given = block_.has("file") || !reading_.options.samples_file.empty() || !ours_;
    design().kind = DesignKind::file;
    if (ours_ && block_.has("design")) {
      design().kind = static_cast<DesignKind>(block_.choice("design", 0, kDesigns));
    } else if (!file_given) {
      error(block_.node().mark,
            "the samples: block needs the key 'design' (" + text::join(kDesigns, ", ") + ") or 'file'");
      replace_design_by_file();  // so that the steps know the columns
      return samples_;
    }
    const bool overridden = !reading_.options.samples_file.empty();
    if (overridden && design().kind != DesignKind::file) replace_design_by_file();
    switch (design().kind) {
      case DesignKind::file:
        read_file_keys();
        break;
      case DesignKind::list:
        read_list();
        break;
      default:
        read_box();
    }
    block_.finish();
    check_names();
    return samples_;
  }

 private:
  static std::string name(std::optional<std::size_t> part) {
    return part ? fmt::format("the {}. design of samples:", *part + 1) : "the samples: block";
  }
  SampleDesign& design() { return samples_.design; }
  void error(const yaml::Mark& mark, std::string message) {
    reading_.diagnostics.error(mark, std::move(message));
  }

  // --samplesfile replaces a built-in design: the same columns, in the same order.
  void replace_design_by_file() {
    for (const char* key : {"count", "seed", "values"}) block_.find(key);
    if (const yaml::Node* parameters = block_.find("parameters")) {
      for (const auto& [key, value] : parameters->entries) add_column(key);
    }
    if (const yaml::Node* columns = block_.find("columns")) {
      for (const yaml::Node& item : columns->items) add_column(item);
    }
    design().kind = DesignKind::file;
  }

  void add_column(const yaml::Node& name) {
    SampleColumn column;
    column.name = value_text(name);
    design().columns.push_back(std::move(column));
    marks_.push_back(name.mark);
  }

  void read_file_keys() {
    const bool overridden = !reading_.options.samples_file.empty();
    if (!overridden && !block_.has("file")) {
      block_.required("file");
      for (const char* key : {"column_labels", "generate", "header"}) block_.find(key);
      return;
    }
    const yaml::Node* labels = ours_ ? block_.find("column_labels") : block_.required("column_labels");
    if (labels != nullptr) {
      for (const yaml::Node& item : labels->is_sequence() ? labels->items : std::vector<yaml::Node>{*labels})
        add_column(item);
    }
    const std::string written = block_.string("file");
    design().file = overridden ? caller_directory(reading_.options) / reading_.options.samples_file
                               : locate(reading_.study, written);
    design().file = design().file.lexically_normal();
    const bool text_file = text::lower(design().file.extension().string()) != ".npy";
    const bool unnamed = design().columns.empty() || (overridden && first_row_names_columns());
    design().header = ours_ && block_.boolean("header", text_file && unnamed);
    if (part_ && block_.has("generate")) {
      error(block_.mark_of("generate"), "'generate' is for a samples: block of one design");
      block_.find("generate");
    } else if (const yaml::Node* generate = block_.find("generate")) {
      yaml::MapReader inner(*generate, "the generate: block", reading_.diagnostics);
      // Merlin's own copies of a study have an empty block.
      const std::string command = ours_ ? inner.required_string("cmd") : inner.string("cmd");
      inner.finish();
      if (!overridden) samples_.generate_command = command;
    }
    use_campaigns_copy();
    open_file(overridden || !block_.has("file") ? block_.node().mark : block_.mark_of("file"));
  }

  // For a table that replaces a design: a first row with the columns' names is not a sample.
  bool first_row_names_columns() {
    SampleDesign table;
    table.kind = DesignKind::file;
    table.file = design().file;
    table.header = true;
    try {
      return open_samples(table)->columns() == column_names(design());
    } catch (const Error&) {
      return false;  // open_file() reports the error
    }
  }

  // A resumed campaign reads the table it started with, even if the original has changed.
  void use_campaigns_copy() {
    std::error_code none;
    if (reading_.options.campaign.empty()) return;
    if (reading_.options.fresh_samples && fs::exists(design().file, none)) return;
    const fs::path campaign = absolute_path(reading_.options.campaign);
    const std::string name = copy_name(design().file, part_.value_or(0));
    const auto known = reading_.options.table_checksums.find(name);
    if (known != reading_.options.table_checksums.end()) design().checksum = known->second;
    std::vector<fs::path> there;
    for (const fs::path& file : {reading_.options.version_folder / kSamplesFolder / name,
                                 campaign / "merlin_info" / name, design().file}) {
      std::error_code ignored;
      if (fs::is_regular_file(file, ignored)) there.push_back(file);
    }
    if (there.empty()) return;
    const auto whole = std::find_if(there.begin(), there.end(), [this](const fs::path& file) {
      return design().checksum.empty() || hash_file(file) == design().checksum;
    });
    // The first of several damaged tables, which open_samples() refuses.
    design().file = whole == there.end() ? there.front() : *whole;
  }

  void open_file(const yaml::Mark& mark) {
    std::error_code ignored;
    if (!samples_.generate_command.empty() && !fs::exists(design().file, ignored)) return;
    try {
      const auto table = open_samples(design());
      const auto& found = table->columns();
      design().count = table->count();
      const bool named = !design().columns.empty();
      if (named && found.size() != design().columns.size()) {
        const std::string message =
            fmt::format("{} has {} columns, column_labels has {}", design().file.string(), found.size(),
                        design().columns.size());
        // Merlin continues with the columns that have a name.
        ours_ ? error(mark, message) : reading_.diagnostics.unknown_key(mark, message);
        if (design().columns.size() > found.size()) design().columns.resize(found.size());
      }
      if (!named) {
        for (const std::string& name : found) {
          design().columns.push_back({name, 0, 1, false, false, {}});
          marks_.push_back(mark);
        }
      }
    } catch (const Error& problem) {
      error(mark, problem.what());
    }
  }

  void read_list() {
    const yaml::Node* columns = block_.required("columns");
    const yaml::Node* values = block_.required("values");
    if (columns == nullptr || values == nullptr) return;
    for (const yaml::Node& item : columns->is_sequence() ? columns->items : std::vector<yaml::Node>{*columns})
      add_column(item);
    if (!values->is_sequence() || values->items.empty()) {
      error(values->mark,
            "'values' must be a list of rows such as [[1, 2], [3, 4]], found " + values->describe());
      return;
    }
    for (const yaml::Node& row : values->items) {
      const std::vector<yaml::Node> cells = row.is_sequence() ? row.items : std::vector<yaml::Node>{row};
      if (cells.size() != design().columns.size()) {
        error(row.mark, fmt::format("this row has {} value{}, there are {} columns", cells.size(),
                                    cells.size() == 1 ? "" : "s", design().columns.size()));
        continue;
      }
      for (std::size_t i = 0; i < cells.size(); ++i)
        design().columns[i].values.push_back(value_text(cells[i]));
    }
    design().count = values->items.size();
  }

  void read_box() {
    const bool grid = design().kind == DesignKind::grid;
    design().seed = static_cast<std::uint64_t>(block_.integer("seed", 0, 0, INT64_MAX));
    if (!grid) {
      block_.required("count");
      design().count = static_cast<std::uint64_t>(block_.integer("count", 1, 1, kMaxCount));
    }
    const yaml::Node* parameters = block_.required("parameters");
    if (parameters == nullptr) return;
    yaml::MapReader list(*parameters, "samples: parameters:", reading_.diagnostics);
    for (const auto& [key, value] : list.node().entries) {
      add_column(key);
      SampleColumn& column = design().columns.back();
      if (value.is_map()) {
        read_range(column, value);
      } else if (grid) {
        read_values(column, value);
      } else {
        read_pair(column, value);
      }
    }
    if (design().columns.empty()) error(parameters->mark, "samples: parameters: names no parameter");
    if (design().kind == DesignKind::sobol && design().columns.size() > Sobol::kMaxDimensions) {
      error(parameters->mark,
            fmt::format("the sobol design has {} parameters at most, found {}; take latin_hypercube",
                        Sobol::kMaxDimensions, design().columns.size()));
    }
    if (grid) count_grid(parameters->mark);
  }

  void read_pair(SampleColumn& column, const yaml::Node& value) {
    if (!value.is_sequence() || value.items.size() != 2) {
      error(value.mark,
            fmt::format(
                "'{}' must be [low, high] or {{low: ..., high: ...}}, found {}", column.name,
                value.is_sequence() ? fmt::format("a list of {}", value.items.size()) : value.describe()));
      return;
    }
    const auto low = yaml::as_real(value.items[0], column.name, reading_.diagnostics);
    const auto high = yaml::as_real(value.items[1], column.name, reading_.diagnostics);
    if (low && high) set_range(column, *low, *high, value.mark);
  }

  void read_values(SampleColumn& column, const yaml::Node& value) {
    if (!value.is_sequence() || value.items.empty()) {
      error(value.mark,
            fmt::format("'{}' must be a list of values or {{low: ..., high: ..., points: ...}}, found {}",
                        column.name, value.describe()));
      return;
    }
    for (const yaml::Node& item : value.items) column.values.push_back(value_text(item));
  }

  void read_range(SampleColumn& column, const yaml::Node& value) {
    yaml::MapReader range(value, fmt::format("the sample parameter '{}'", column.name), reading_.diagnostics);
    const yaml::Node* low = range.required("low");
    const yaml::Node* high = range.required("high");
    const double from = range.real("low", 0, -1e300, 1e300);
    const double to = range.real("high", from + 1, -1e300, 1e300);
    column.log = range.boolean("log", false);
    column.integer = range.boolean("integer", false);
    if (low != nullptr && high != nullptr) set_range(column, from, to, value.mark);
    if (design().kind == DesignKind::grid) {
      range.required("points");
      make_points(column, range.integer("points", 2, 1, 100'000));
    }
    range.finish();
  }

  void make_points(SampleColumn& column, std::int64_t points) {
    for (std::int64_t i = 0; i < points; ++i) {
      const double u = points == 1 ? 0 : static_cast<double>(i) / static_cast<double>(points - 1);
      double value = column.log
                         ? std::exp(std::log(column.low) + u * (std::log(column.high) - std::log(column.low)))
                         : column.low + u * (column.high - column.low);
      if (i == 0) value = column.low;
      if (i > 0 && i == points - 1) value = column.high;
      column.values.push_back(text::from_real(column.integer ? std::round(value) : value));
    }
  }

  void set_range(SampleColumn& column, double low, double high, const yaml::Mark& mark) {
    column.low = low;
    column.high = high;
    if (!(low < high)) {
      error(mark, fmt::format("'{}' must have low < high, found {} and {}", column.name, low, high));
    } else if (column.log && low <= 0) {
      error(mark, fmt::format("'{}' is logarithmic and must have low > 0, found {}", column.name, low));
    } else if (column.integer && (low != std::floor(low) || high != std::floor(high) ||
                                  std::abs(low) > 1e15 || std::abs(high) > 1e15)) {
      error(mark, fmt::format("'{}' is integer and must have whole bounds, found {} and {}", column.name, low,
                              high));
    } else if (column.integer && column.log) {
      error(mark, fmt::format("'{}' can't be integer and log at once", column.name));
    }
  }

  void count_grid(const yaml::Mark& mark) {
    std::uint64_t count = 1;
    for (const SampleColumn& column : design().columns) {
      if (column.values.empty()) return;
      if (count > static_cast<std::uint64_t>(kMaxCount) / column.values.size()) {
        error(mark, "the grid has more than 2^48 points");
        return;
      }
      count *= column.values.size();
    }
    design().count = count;
  }

  void check_names() {
    const auto& reserved = reserved_names();
    std::set<std::string> seen;
    for (std::size_t i = 0; i < design().columns.size(); ++i) {
      const std::string& name = design().columns[i].name;
      const yaml::Mark mark = i < marks_.size() ? marks_[i] : block_.node().mark;
      const auto same = [&name](const Parameter& parameter) { return parameter.name == name; };
      if (text::trim(name).empty()) {
        error(mark, fmt::format("the sample column {} has no name", i + 1));
      } else if (!seen.insert(name).second) {
        error(mark, fmt::format("the sample column '{}' stands here twice", name));
      } else if (std::any_of(reading_.study.parameters.begin(), reading_.study.parameters.end(), same)) {
        error(mark, fmt::format("the sample column '{}' has the name of a parameter", name));
      } else if (reading_.values.contains(name)) {
        error(mark, fmt::format("the sample column '{}' has the name of a variable", name));
      } else if (std::find(reserved.begin(), reserved.end(), name) != reserved.end()) {
        error(mark, fmt::format("the sample column '{}' is a reserved word", name));
      }
    }
  }

  Reading& reading_;
  bool ours_;
  std::optional<std::size_t> part_;
  yaml::MapReader block_;
  Samples samples_;
  std::vector<yaml::Mark> marks_;  // one for each column
};

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
    const Samples part = SamplesReader(reading, list.items[i], true, i).read();
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
        ours->is_sequence() ? read_parts(reading, *ours) : SamplesReader(reading, *ours, true).read();
  }
  if (merlins != nullptr) reading.study.samples = SamplesReader(reading, *merlins, false).read();
  if (reading.study.samples) set_grown(reading, *reading.study.samples);
  if (reading.options.samples_file.empty() || !reading.study.samples) return;
  for (yaml::Node* tree : {&reading.study.partial, &reading.root})
    name_samples_file(reading, *tree, ours != nullptr);
}

}  // namespace wflow::specs
