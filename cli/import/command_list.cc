// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/import/import.h"

namespace wflow::cli {
namespace {

using Words = std::vector<std::string>;

// Commands that differ in some words only.
struct Pattern {
  std::string command;  // with $(NAME) for these words
  std::vector<std::string> names;
  std::vector<Words> rows;
};

std::vector<std::string> commands_of(const ImportSource& source) {
  std::vector<std::string> commands;
  for (const std::string& line : import_lines(source.text)) {
    const std::string_view command = text::trim(line);
    if (!command.empty() && command.front() != '#') commands.emplace_back(command);
  }
  if (commands.empty())
    throw Error(ExitCode::usage,
                fmt::format("{} has no command; wflow init --from takes one command a line", source.name));
  return commands;
}

Words words_of(const std::string& command) {
  std::istringstream stream(command);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Quotes join words, a comma would end a cell, and $( is a token of wflow: such lines stay whole.
bool has_plain_words(const std::string& command) {
  return command.find_first_of("'\"\\,`") == std::string::npos && command.find("$(") == std::string::npos;
}

// The part up to and with the last '=' that all words of a place begin with: "--x=" of "--x=1" and "--x=2".
std::string common_option(const std::vector<Words>& commands, std::size_t place) {
  const std::string& first = commands.front()[place];
  const std::size_t equals = first.find('=');
  if (equals == std::string::npos) return "";
  const std::string option = first.substr(0, equals + 1);
  const bool same = std::all_of(commands.begin(), commands.end(),
                                [&](const Words& words) { return words[place].starts_with(option); });
  return same ? option : "";
}

// "seed" for the word after "--seed" or behind "--seed=", else "word5".
std::string column_name(const Words& words, std::size_t place, const std::string& option) {
  std::string from = option;
  if (from.empty() && place > 0 && words[place - 1].starts_with('-') &&
      words[place - 1].find('=') == std::string::npos)
    from = words[place - 1];
  std::string name;
  for (const char c : from) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') name += c;
    if (c == '-' && !name.empty()) name += '_';
  }
  const bool is_name = !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0;
  return is_name ? name : fmt::format("word{}", place + 1);
}

std::optional<Pattern> pattern_of(const std::vector<std::string>& commands) {
  std::vector<Words> all;
  for (const std::string& command : commands) {
    all.push_back(words_of(command));
    if (!has_plain_words(command) || all.back().size() != all.front().size()) return std::nullopt;
  }
  Pattern pattern;
  pattern.rows.resize(all.size());
  std::set<std::string> names = {"folder", "output_path"};  // variables of the study, also in small letters
  for (std::size_t place = 0; place < all.front().size(); ++place) {
    const bool same = std::all_of(all.begin(), all.end(),
                                  [&](const Words& words) { return words[place] == all.front()[place]; });
    if (place > 0) pattern.command += ' ';
    if (same) {
      pattern.command += all.front()[place];
      continue;
    }
    const std::string option = common_option(all, place);
    std::string name = column_name(all.front(), place, option);
    if (!names.insert(text::lower(name)).second) names.insert(name = fmt::format("word{}", place + 1));
    for (std::size_t row = 0; row < all.size(); ++row) {
      const std::string cell = all[row][place].substr(option.size());
      if (cell.empty()) return std::nullopt;  // a table has no empty cells
      pattern.rows[row].push_back(cell);
    }
    pattern.command += fmt::format("{}$({})", option, name);
    pattern.names.push_back(name);
  }
  if (pattern.names.empty()) return std::nullopt;  // the same command again and again
  return pattern;
}

std::string table_of(const Pattern& pattern) {
  std::string table = text::join(pattern.names, ",") + "\n";
  for (const Words& row : pattern.rows) table += text::join(row, ",") + "\n";
  return table;
}

}  // namespace

ImportedStudy import_commands(const ImportSource& source) {
  const std::vector<std::string> commands = commands_of(source);
  const std::optional<Pattern> pattern = pattern_of(commands);
  ImportedStudy imported;
  imported.kind = "commands";
  const std::string name = import_name(source.name);
  imported.table_name = name + (pattern ? ".csv" : ".lines");
  imported.table = pattern ? table_of(*pattern) : text::join(commands, "\n") + "\n";
  std::string command = pattern ? pattern->command : "eval $(quote:command)";
  imported.study = fmt::format(
      R"yaml(# Made by: wflow init --from {}
#
#   wflow plan study.yaml     then: wflow run study.yaml
description: {{name: {}, description: {}}}

env:
  variables:
    OUTPUT_PATH: ./campaigns
    FOLDER: {}    # where the commands run

samples:
  file: {}    # a row for each of the {} commands
{}
study:
  - name: command
    run:
      # cores, memory, timeout, max_retries, outputs: docs/spec.md, Steps
      cmd: |
        cd "$(FOLDER)"
        {}
)yaml",
      source.name, import_scalar(name), import_scalar("the commands of " + source.name),
      import_scalar(source.folder), import_scalar(imported.table_name), text::format_count(commands.size()),
      pattern ? "" : "  column_labels: [command]\n", command);
  return imported;
}

}  // namespace wflow::cli
