// SPDX-License-Identifier: Apache-2.0
// A study of Merlin's or Maestro's as one of wflow's own format. Text and comments of the file stay; only
// the keys that have another place in wflow's format move.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/yaml.h"

namespace wflow::cli {

namespace {

std::size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

bool is_blank(std::string_view line) {
  const std::size_t at = indent_of(line);
  return at == line.size() || line[at] == '#';
}

struct Range {
  std::size_t begin = 0;  // lines
  std::size_t end = 0;
};

// The lines of the value of a key that stands on line `key`: those that are indented more, or are items of a
// list in the key's column. Blank lines and comments after them are left out.
Range block_of(const std::vector<std::string>& lines, std::size_t key) {
  const std::size_t indent = indent_of(lines[key]);
  Range range = {key, key + 1};
  for (std::size_t i = key + 1; i < lines.size(); ++i) {
    if (is_blank(lines[i])) continue;
    const std::size_t own = indent_of(lines[i]);
    if (own < indent || (own == indent && lines[i][own] != '-')) break;
    range.end = i + 1;
  }
  return range;
}

const yaml::Node* key_of(const yaml::Node& map, std::string_view key) {
  for (const auto& [name, value] : map.entries)
    if (name.text == key) return &name;
  return nullptr;
}

// `samples:` of the merlin: block at top level, as written where it begins a line.
std::vector<std::string> samples_lines(const std::vector<std::string>& lines, const yaml::Node& merlin) {
  const yaml::Node* samples = merlin.find("samples");
  if (samples == nullptr || samples->is_null()) return {};
  const yaml::Node& key = *key_of(merlin, "samples");
  const auto line = static_cast<std::size_t>(key.mark.line - 1);
  if (key.mark.line < 1 || !text::trim(lines[line]).starts_with("samples:"))
    return import_lines(text::trim(yaml::emit(yaml::map({{"samples", *samples}}))));
  const Range range = block_of(lines, line);
  const std::size_t indent = indent_of(lines[line]);
  std::vector<std::string> moved;
  for (std::size_t i = range.begin; i < range.end; ++i)
    moved.push_back(lines[i].substr(std::min(indent, indent_of(lines[i]))));
  return moved;
}

// Merlin runs a step after failures; wflow's format says so.
void continue_after_failures(std::vector<std::string>& lines, const yaml::Node& root) {
  std::vector<yaml::Mark> places;
  const yaml::Node* study = root.find("study");
  for (const yaml::Node& step : study->items) {
    const yaml::Node* run = step.is_map() ? step.find("run") : nullptr;
    if (run == nullptr || !run->is_map()) continue;
    if (const yaml::Node* key = key_of(*run, "depends"); key != nullptr && key->mark.line > 0)
      places.push_back(key->mark);
  }
  std::ranges::sort(places, [](const yaml::Mark& a, const yaml::Mark& b) {
    return std::pair(a.line, a.column) > std::pair(b.line, b.column);
  });
  for (const yaml::Mark& place : places) {
    const auto line = static_cast<std::size_t>(place.line - 1);
    const auto column = static_cast<std::size_t>(place.column - 1);
    std::string& text = lines[line];
    if (column <= text.size() && text::trim(std::string_view(text).substr(0, column)).empty()) {
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(line),
                   std::string(column, ' ') + "continue_on: soft_fail");
    } else {
      text.insert(std::min(column, text.size()), "continue_on: soft_fail, ");
    }
  }
}

// Maestro's pool of tasks: wflow runs as many as there are cores, or as `wflow run -j` says.
void leave_out_pool_size(std::vector<std::string>& lines, const yaml::Node& root) {
  const yaml::Node* batch = root.find("batch");
  const yaml::Node* key = batch != nullptr && batch->is_map() ? key_of(*batch, "num_workers") : nullptr;
  if (key == nullptr || key->mark.line < 1) return;
  std::string& line = lines[static_cast<std::size_t>(key->mark.line - 1)];
  const std::size_t column = std::min(static_cast<std::size_t>(key->mark.column - 1), line.size());
  if (text::trim(std::string_view(line).substr(0, column)).empty()) {
    line.insert(column, "# wflow run -j in place of ");
    return;
  }
  std::size_t end = std::min(line.find_first_of(",}", column), line.size());
  std::size_t begin = column;
  if (end < line.size() && line[end] == ',') {
    end = std::min(line.find_first_not_of(' ', end + 1), line.size());
  } else {
    begin = line.find_last_not_of(", ", column - 1) + 1;
  }
  line.erase(begin, end - begin);
}

std::string replaced(std::string text, std::string_view token, const std::string& value) {
  for (std::size_t at = text.find(token); at != std::string::npos; at = text.find(token, at + value.size()))
    text.replace(at, token.size(), value);
  return text;
}

bool has_key(const yaml::Node& node, std::string_view key) {
  if (node.is_map() && node.find(key) != nullptr) return true;
  const auto below = [&](const auto& part) { return has_key(part, key); };
  return std::ranges::any_of(node.items, below) ||
         std::ranges::any_of(node.entries, [&](const auto& entry) { return below(entry.second); });
}

// Comments that say how the new file differs.
std::string remarks(const yaml::Node& root, const std::string& whose, const std::string& name) {
  std::string text = fmt::format(
      "# Made of {} by wflow init: {} study in wflow's own format, which the next line says.\n"
      "# wflow: wflow\n"
      "# Values of variables and parameters appear as they are written here; {} prints 0.10 as 0.1.\n",
      name, whose == "Merlin" ? "Merlin's" : "Maestro's", whose);
  const yaml::Node* merlin = root.find("merlin");
  const yaml::Node* resources = merlin != nullptr && merlin->is_map() ? merlin->find("resources") : nullptr;
  if (resources != nullptr && !resources->is_null())
    text +=
        "# Merlin's workers are left out: wflow run starts workers (docs/cluster.md: batch: and workers:).\n";
  if (has_key(root, "max_retries"))
    text += "# max_retries also repeats tasks that fail, not only those that end with 100 or 104.\n";
  return text;
}

}  // namespace

bool is_study(std::string_view text) {
  const std::vector<std::string> lines = import_lines(text);
  return std::ranges::any_of(lines, [](const std::string& line) { return line.starts_with("study:"); });
}

ImportedStudy import_their_study(const ImportSource& source, std::string_view format) {
  yaml::Diagnostics diagnostics(source.name);
  const yaml::Node root = yaml::parse(source.text, diagnostics);
  diagnostics.throw_if_errors();
  const yaml::Node* study = root.is_map() ? root.find("study") : nullptr;
  if (study == nullptr || !study->is_sequence())
    throw Error(ExitCode::usage,
                fmt::format("{} has no list of steps under study:; wflow init --from takes a "
                            "study of Merlin or Maestro",
                            source.name));
  for (const char* block : {"samples", "workers", "parameters", "iterate"}) {
    if (root.find(block) == nullptr) continue;
    throw Error(ExitCode::usage, fmt::format("{} has {}: at top level and is in wflow's own format already: "
                                             "wflow run {}",
                                             source.name, block, source.name));
  }
  const yaml::Node* merlin = root.find("merlin");
  const bool is_merlin =
      format == "merlin" || (format.empty() && (merlin != nullptr || has_key(*study, "task_queue") ||
                                                source.text.find("$(MERLIN_") != std::string::npos));
  std::vector<std::string> lines = import_lines(source.text);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::vector<std::string> samples;
  std::optional<Range> removed;
  if (const yaml::Node* key = merlin != nullptr ? key_of(root, "merlin") : nullptr; key != nullptr) {
    samples = merlin->is_map() ? samples_lines(lines, *merlin) : samples;
    removed = block_of(lines, static_cast<std::size_t>(key->mark.line - 1));
  }
  if (removed) {
    // Lines keep their numbers until the steps are changed.
    std::fill(lines.begin() + static_cast<std::ptrdiff_t>(removed->begin),
              lines.begin() + static_cast<std::ptrdiff_t>(removed->end), std::string("\n"));
  }
  leave_out_pool_size(lines, root);
  if (is_merlin) continue_after_failures(lines, root);
  ImportedStudy made;
  made.kind = is_merlin ? "Merlin's study" : "Maestro's study";
  made.study = remarks(root, is_merlin ? "Merlin" : "Maestro", source.name);
  bool placed = false;
  for (const std::string& line : lines) {
    if (line != "\n") {
      made.study += line + "\n";
      continue;
    }
    for (const std::string& moved : std::exchange(placed, true) ? std::vector<std::string>{} : samples)
      made.study += moved + "\n";
  }
  if (source.folder != "$(SPECROOT)")
    made.study = replaced(std::move(made.study), "$(SPECROOT)", source.folder);
  return made;
}

std::vector<std::string> import_lines(std::string_view text) {
  std::vector<std::string> lines = text::split(text, '\n');
  for (std::string& line : lines)
    if (line.ends_with('\r')) line.pop_back();
  return lines;
}

std::string import_scalar(std::string_view text) {
  // A JSON string is also a YAML string.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string import_name(std::string_view file) {
  std::string name(file.substr(0, file.find('.')));
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-') c = '_';
  return name.empty() ? "study" : name;
}

ImportedStudy import_study(const ImportSource& source) {
  if (is_sbatch(source.text)) return import_sbatch_array(source);
  if (is_study(source.text)) return import_their_study(source, {});
  if (source.text.starts_with("#!"))
    throw Error(
        ExitCode::usage,
        fmt::format("{} is a script without #SBATCH lines; wflow init --from takes a script of a Slurm "
                    "array, or a file with one command a line",
                    source.name));
  return import_commands(source);
}

}  // namespace wflow::cli
