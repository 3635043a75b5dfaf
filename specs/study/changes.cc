// SPDX-License-Identifier: Apache-2.0
#include "specs/study/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

constexpr std::size_t kLongestLine = 100;

// "[0.1, 2]" if it fits on one line.
std::optional<std::string> in_a_line(const yaml::Node& list) {
  if (!list.is_sequence()) return std::nullopt;
  std::vector<std::string> items;
  for (const yaml::Node& item : list.items) {
    if (!item.is_scalar()) return std::nullopt;
    items.push_back(item.text);
  }
  const std::string text = "[" + text::join(items, ", ") + "]";
  if (text.size() > kLongestLine || text.find('\n') != std::string::npos) return std::nullopt;
  return text;
}

std::string written(const yaml::Node& node) {
  if (node.is_scalar()) return node.text;
  if (node.is_null()) return {};
  if (const auto line = in_a_line(node)) return *line;
  std::string text = yaml::emit(node);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

bool all_named(const yaml::Node& list) {
  return list.is_sequence() && std::all_of(list.items.begin(), list.items.end(), [](const yaml::Node& item) {
           const yaml::Node* name = item.is_map() ? item.find("name") : nullptr;
           return name != nullptr && name->is_scalar();
         });
}

const yaml::Node* named(const yaml::Node& list, const std::string& name) {
  for (const yaml::Node& item : list.items) {
    if (item.find("name")->text == name) return &item;
  }
  return nullptr;
}

class KeyComparing {
 public:
  void compare(const std::string& key, const yaml::Node* from, const yaml::Node* to) {
    if (from == nullptr && to == nullptr) return;
    if (from != nullptr && to != nullptr) {
      if (from->is_map() && to->is_map()) return compare_maps(key, *from, *to);
      if (all_named(*from) && all_named(*to)) return compare_lists(key, *from, *to);
      if (from->kind == to->kind && written(*from) == written(*to)) return;
    }
    const auto text = [](const yaml::Node* node) {
      return node == nullptr ? std::nullopt : std::optional<std::string>(written(*node));
    };
    changes.push_back({key, text(from), text(to)});
  }

  std::vector<KeyChange> changes;

 private:
  static std::string below(const std::string& key, const std::string& name) {
    return key.empty() ? name : key + "." + name;
  }
  void compare_maps(const std::string& key, const yaml::Node& from, const yaml::Node& to) {
    for (const auto& [name, value] : from.entries) compare(below(key, name.text), &value, to.find(name.text));
    for (const auto& [name, value] : to.entries) {
      if (from.find(name.text) == nullptr) compare(below(key, name.text), nullptr, &value);
    }
  }
  void compare_lists(const std::string& key, const yaml::Node& from, const yaml::Node& to) {
    for (const yaml::Node& item : from.items) {
      const std::string name = item.find("name")->text;
      compare(below(key, name), &item, named(to, name));
    }
    for (const yaml::Node& item : to.items) {
      const std::string name = item.find("name")->text;
      if (named(from, name) == nullptr) compare(below(key, name), nullptr, &item);
    }
  }
};

void add_lines(std::vector<std::string>& lines, const char* sign, const std::vector<std::string>& text,
               const std::vector<std::string>& other) {
  const std::multiset<std::string> there(other.begin(), other.end());
  for (const std::string& line : text) {
    if (!there.contains(line)) lines.push_back(fmt::format("  {} {}", sign, line));
  }
}

}  // namespace

std::vector<KeyChange> differences(const Study& from, const Study& to) {
  KeyComparing comparing;
  comparing.compare("", &from.original, &to.original);
  const std::string was = text::join(from.options.variables, " ");
  const std::string is = text::join(to.options.variables, " ");
  if (was != is) comparing.changes.push_back({"--vars", was, is});
  if (from.options.samples_file != to.options.samples_file)
    comparing.changes.push_back({"--samplesfile", from.options.samples_file, to.options.samples_file});
  return std::move(comparing.changes);
}

std::vector<std::string> lines_of(const KeyChange& change) {
  const std::string before = change.before.value_or("");
  const std::string after = change.after.value_or("");
  const bool short_texts = before.find('\n') == std::string::npos && after.find('\n') == std::string::npos;
  if (short_texts) {
    if (!change.before) return {fmt::format("{}: {} (new)", change.key, after)};
    if (!change.after) return {fmt::format("{}: {} (removed)", change.key, before)};
    return {fmt::format("{}: {} -> {}", change.key, before, after)};
  }
  std::vector<std::string> lines = {fmt::format("{}:{}", change.key,
                                                !change.before  ? " (new)"
                                                : !change.after ? " (removed)"
                                                                : "")};
  const auto was = text::split(before, '\n');
  const auto is = text::split(after, '\n');
  if (change.before) add_lines(lines, "-", was, is);
  if (change.after) add_lines(lines, "+", is, was);
  return lines;
}

namespace fs = std::filesystem;

namespace {

constexpr const char* kShown = "the campaign's study";

Study read_again(const Study& study, const std::string& text, const ReadOptions& options) {
  return read_study_text(text, study.file, kShown, options).study;
}

std::vector<std::uint64_t> counts_before(const Study& old) {
  std::vector<std::uint64_t> counts = old.options.grown;
  const std::uint64_t count = old.samples->design.count;
  if (counts.empty() || counts.back() < count) counts.push_back(count);
  return counts;
}

yaml::Node parsed(const std::string& text) {
  yaml::Diagnostics diagnostics(kShown);
  yaml::Node root = yaml::parse(text, diagnostics);
  diagnostics.throw_if_errors();
  return root;
}

// The text as a YAML scalar on one line.
std::string in_quotes(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

// The offset of a place in the text.
std::size_t offset_of(std::string_view text, const yaml::Mark& mark) {
  std::size_t at = 0;
  for (int line = 1; line < mark.line; ++line) at = text.find('\n', at) + 1;
  return at + static_cast<std::size_t>(mark.column - 1);
}

const yaml::Node* samples_of(const yaml::Node& root) {
  const yaml::Node* samples = root.find("samples");
  return samples == nullptr || samples->is_null() ? nullptr : samples;
}

// The design that continues: the last of a list.
const SampleDesign& last_design(const SampleDesign& design) {
  return design.kind == DesignKind::parts ? design.parts.back() : design;
}

bool has_count(DesignKind kind) {
  return kind == DesignKind::uniform || kind == DesignKind::latin_hypercube || kind == DesignKind::sobol ||
         kind == DesignKind::halton;
}

std::string flow(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(in_quotes(word));
  return "[" + text::join(quoted, ", ") + "]";
}

// "{file: '/more.csv'}", with its columns' names if it has none.
std::string file_design(const SampleDesign& design, const fs::path& file) {
  const std::string path = in_quotes(absolute_path(file).lexically_normal().string());
  SampleDesign table;
  table.kind = DesignKind::file;
  table.file = file;
  table.header = text::lower(file.extension().string()) != ".npy";
  if (table.header && open_samples(table)->columns() == column_names(design)) return "{file: " + path + "}";
  return fmt::format("{{file: {}, column_labels: {}}}", path, flow(column_names(design)));
}

void set_range(SampleColumn& column, const std::string& range) {
  const auto parts = text::split(range, ':');
  std::vector<double> bounds;
  for (const std::string& part : parts) bounds.push_back(text::to_real(part).value_or(NAN));
  if (bounds.size() != 2 || !(bounds[0] < bounds[1])) {
    throw Error(ExitCode::usage,
                fmt::format("--range {}={}: a range is LOW:HIGH, such as 0.2:0.4", column.name, range));
  }
  column.low = bounds[0];
  column.high = bounds[1];
}

// A further design over other ranges: `count` new rows.
std::string narrowed_design(const SampleDesign& design, const Growth& growth, std::uint64_t count,
                            std::uint64_t number) {
  std::vector<SampleColumn> columns = design.columns;
  for (const auto& [name, range] : growth.ranges) {
    const auto column = std::find_if(columns.begin(), columns.end(),
                                     [&name = name](const auto& c) { return c.name == name; });
    if (column == columns.end()) {
      throw Error(ExitCode::usage, fmt::format("'{}' is no column of the samples{}", name,
                                               text::suggestion(name, column_names(design))));
    }
    set_range(*column, range);
  }
  std::string text = fmt::format("{{design: {}, count: {}, seed: {}, parameters: {{", name_of(design.kind),
                                 count, design.seed + number);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const SampleColumn& c = columns[i];
    text += fmt::format("{}{}: {{low: {}, high: {}{}{}}}", i == 0 ? "" : ", ", in_quotes(c.name),
                        text::from_real(c.low), text::from_real(c.high), c.log ? ", log: true" : "",
                        c.integer ? ", integer: true" : "");
  }
  return text + "}}";
}

void require_more(std::uint64_t count, std::uint64_t had) {
  if (count > had) return;
  throw Error(
      ExitCode::usage,
      fmt::format("the campaign has {} samples; --count says how many there are to be in all: more than that",
                  text::format_count(had)));
}

// The text and options with the further samples.
std::string grow(const Study& old, ReadOptions& options, const Growth& growth) {
  const SampleDesign& design = old.samples->design;
  const SampleDesign& last = last_design(design);
  const std::uint64_t parts = std::max<std::size_t>(design.parts.size(), 1);
  if (!growth.samples.empty()) {
    options.samples_file = absolute_path(growth.samples).lexically_normal().string();
    options.fresh_samples = true;
    return old.text;
  }
  if (!growth.append.empty()) return with_design(old.text, file_design(design, growth.append));
  require_more(growth.count, design.count);
  if (!has_count(last.kind)) {
    throw Error(
        ExitCode::usage,
        fmt::format(
            "samples of the design '{}' do not go on by themselves; give a table of further ones with "
            "--append FILE{}",
            name_of(last.kind), last.kind == DesignKind::file ? ", or of all with --samples FILE" : ""));
  }
  if (!growth.ranges.empty())
    return with_design(old.text, narrowed_design(last, growth, growth.count - design.count, parts));
  std::string variable;
  const std::uint64_t of_last = growth.count - (design.count - last.count);
  if (auto text = with_count(old.text, of_last, variable)) return *text;
  std::erase_if(options.variables, [&](const std::string& v) { return v.starts_with(variable + "="); });
  options.variables.push_back(fmt::format("{}={}", variable, of_last));
  return old.text;
}

}  // namespace

std::optional<std::string> with_count(const std::string& text, std::uint64_t count, std::string& variable) {
  const yaml::Node root = parsed(text);
  const yaml::Node* samples = samples_of(root);
  if (samples != nullptr && samples->is_sequence() && !samples->items.empty())
    samples = &samples->items.back();
  const yaml::Node* number = samples == nullptr ? nullptr : samples->find("count");
  if (number == nullptr || !number->is_scalar())
    throw Error(ExitCode::usage, "the study's samples have no 'count' that could become more");
  if (const auto token = find_token(number->text)) {
    if (token->begin != 0 || token->end != number->text.size()) {
      throw Error(ExitCode::usage,
                  fmt::format("the samples' count is '{}'; change it in the study, and take it over "
                              "with wflow resume --update",
                              number->text));
    }
    variable = std::string(token->name);
    return std::nullopt;
  }
  std::size_t at = offset_of(text, number->mark);
  if (number->quoted && at < text.size() && (text[at] == '"' || text[at] == '\'')) ++at;
  if (text.compare(at, number->text.size(), number->text) != 0)
    throw Error(ExitCode::usage, "the samples' count is no plain number; change it in the study");
  std::string changed = text;
  return changed.replace(at, number->text.size(), std::to_string(count));
}

std::string with_design(const std::string& text, std::string_view design) {
  const yaml::Node root = parsed(text);
  const auto key = std::find_if(root.entries.begin(), root.entries.end(),
                                [](const auto& entry) { return entry.first.text == "samples"; });
  if (key == root.entries.end() || key->second.is_null() || !key->first.mark.line) {
    throw Error(
        ExitCode::usage,
        "the study has no block samples: of its own at top level, to which more could be added; give a table "
        "of all samples with --samples FILE");
  }
  // The block's lines: from its key to the next one at top level.
  const auto first = static_cast<std::size_t>(key->first.mark.line) - 1;
  std::vector<std::string> lines = text::split(text, '\n');
  std::size_t end = lines.size();
  for (const auto& [other, value] : root.entries) {
    const auto line = static_cast<std::size_t>(other.mark.line) - 1;
    if (line > first) end = std::min(end, line);
  }
  // Comments and empty lines before the next key are the next key's.
  const auto is_content = [](const std::string& line) {
    const std::string_view trimmed = text::trim(line);
    return !trimmed.empty() && trimmed.front() != '#';
  };
  while (end > first + 1 && !is_content(lines[end - 1])) --end;
  std::vector<std::string> block;
  const std::size_t value_column = static_cast<std::size_t>(key->second.mark.column) - 1;
  const bool same_line = key->second.mark.line == key->first.mark.line;
  if (key->second.is_sequence()) {
    block.assign(lines.begin() + static_cast<std::ptrdiff_t>(first),
                 lines.begin() + static_cast<std::ptrdiff_t>(end));
    if (same_line) {
      throw Error(ExitCode::usage,
                  "write samples: as a list with a line for each design, then more can be added");
    }
    block.push_back(std::string(value_column, ' ') + "- " + std::string(design));
  } else {
    block.push_back("samples:");
    const std::string head = lines[first].substr(lines[first].find(':') + 1);
    if (same_line) {
      block.push_back("  - " + std::string(text::trim(head)));
      for (std::size_t i = first + 1; i < end; ++i) block.push_back("    " + lines[i]);
    } else {
      if (is_content(head)) block.front() += head;
      bool begun = false;
      for (std::size_t i = first + 1; i < end; ++i) {
        const bool begins = !begun && is_content(lines[i]);
        begun = begun || begins;
        const std::size_t blanks = std::min(lines[i].find_first_not_of(' '), value_column);
        const std::string inner = lines[i].empty() ? "" : lines[i].substr(std::min(blanks, lines[i].size()));
        block.push_back(inner.empty() ? "" : (begins ? "  - " : "    ") + inner);
      }
    }
    block.push_back("  - " + std::string(design));
  }
  lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(first),
              lines.begin() + static_cast<std::ptrdiff_t>(end));
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(first), block.begin(), block.end());
  return text::join(lines, "\n");
}

std::optional<Study> as_grown(const Study& old, const Study& now) {
  if (!old.samples || !now.samples || now.samples->design.count <= old.samples->design.count)
    return std::nullopt;
  ReadOptions options = now.options;
  options.grown = counts_before(old);
  try {
    Study study = read_again(now, now.text, options);
    if (growth_problem(old.samples->design, study.samples->design)) return std::nullopt;
    return study;
  } catch (const Error& error) {
    if (error.code() == ExitCode::spec)
      return std::nullopt;  // a Latin hypercube with a count that is not a multiple
    throw;
  }
}

Study grown_study(const Study& old, const ReadOptions& given, const Growth& growth) {
  if (!old.samples) throw Error(ExitCode::usage, "the campaign's study has no samples");
  ReadOptions options = given;
  const std::string text = grow(old, options, growth);
  options.grown = counts_before(old);
  Study study = read_again(old, text, options);
  const SampleDesign& design = study.samples->design;
  if (const auto problem = growth_problem(old.samples->design, design)) {
    throw Error(
        ExitCode::usage,
        fmt::format("{}; a table for --samples begins with the campaign's samples as they are (all rows of a "
                    "table for --append are new)",
                    *problem));
  }
  if (design.count == old.samples->design.count) {
    throw Error(ExitCode::usage,
                fmt::format("the campaign has these {} samples already", text::format_count(design.count)));
  }
  return study;
}

}  // namespace wflow::specs
