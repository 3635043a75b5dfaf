// SPDX-License-Identifier: Apache-2.0
// Warns of names in scripts that mean something else there: ${name} where $(name) was meant, and a script
// beside the study that a task looks for in its own directory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

namespace fs = std::filesystem;

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_shell(const std::string& interpreter) {
  constexpr std::array<std::string_view, 7> kShells = {"sh", "bash", "dash", "ash", "ksh", "zsh", "rbash"};
  const std::string first(text::trim(std::string_view(interpreter).substr(0, interpreter.find(' '))));
  const std::string name = fs::path(first).filename().string();
  // "/usr/bin/env bash"
  if (name == "env") return is_shell(std::string(text::trim(interpreter.substr(first.size()))));
  return name.empty() || std::ranges::find(kShells, name) != kShells.end();
}

// True if a script may set the shell variable: "name=", "for name", "read ... name" and the like. If in
// doubt, true: a wrong warning is worse than a missing one.
bool may_set(std::string_view script, std::string_view name) {
  constexpr std::array<std::string_view, 12> kSetting = {"for",     "read",    "select",   "local",
                                                         "declare", "typeset", "readonly", "export",
                                                         "getopts", "mapfile", "printf",   "readarray"};
  for (std::size_t at = script.find(name); at != std::string_view::npos; at = script.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (at > 0 && (is_of_name(script[at - 1]) || script[at - 1] == '$' || script[at - 1] == '{')) continue;
    if (end < script.size() && is_of_name(script[end])) continue;
    if (end < script.size() && (script[end] == '=' || script.substr(end, 2) == "+=" || script[end] == '['))
      return true;
    const std::size_t line = script.find_last_of('\n', at) + 1;  // 0 if there is none
    for (const std::string& word : text::split(script.substr(line, at - line), ' ')) {
      if (std::ranges::find(kSetting, text::trim(word)) != kSetting.end()) return true;
    }
  }
  return false;
}

// The next ${name} at or behind `from`, with only a name in it: no ":-" and the like.
std::optional<Token> find_braced(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find("${", from); at != std::string_view::npos; at = text.find("${", at + 2)) {
    const bool escaped = at > 0 && (text[at - 1] == '\\' || text[at - 1] == '$');
    std::size_t end = at + 2;
    while (end < text.size() && is_of_name(text[end])) ++end;
    if (escaped || end == at + 2 || end == text.size() || text[end] != '}') continue;
    return Token{at, end + 1, text.substr(at + 2, end - at - 2)};
  }
  return std::nullopt;
}

bool is_interpreter(std::string_view word) {
  constexpr std::array<std::string_view, 9> kNames = {"python", "bash", "sh",     "perl", "Rscript",
                                                      "julia",  "node", "octave", "ruby"};
  std::string_view name = word.substr(word.find_last_of('/') + 1);
  while (!name.empty() && (std::isdigit(static_cast<unsigned char>(name.back())) != 0 || name.back() == '.'))
    name.remove_suffix(1);
  return std::ranges::find(kNames, name) != kNames.end();
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Relative paths that a script runs: "./NAME", and what follows an interpreter and its options.
std::vector<std::string> scripts_run_by(std::string_view script) {
  std::vector<std::string> found;
  bool follows_interpreter = false;
  for (std::size_t at = 0; at < script.size();) {
    const std::size_t begin = script.find_first_not_of(" \t\"'", at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(script.find_first_of(" \t\n\"';|&<>", begin), script.size());
    const std::string_view word = script.substr(begin, end - begin);
    const bool relative = word.starts_with("./") || (follows_interpreter && !word.starts_with('/'));
    const bool option = word.starts_with('-');
    if (relative && !option && word.find('$') == std::string_view::npos) found.emplace_back(word);
    if (!option) follows_interpreter = is_interpreter(word);
    if (end < script.size() && std::string_view("\n;|&<>").find(script[end]) != std::string_view::npos)
      follows_interpreter = false;
    at = std::max(end, begin + 1);
  }
  return found;
}

class ShellNames {
 public:
  explicit ShellNames(Reading& reading) : reading_(reading) {
    for (const std::string& source : reading.study.sources) {
      try {
        sourced_ += read_file(source) + "\n";
      } catch (const Error&) {
        // The variables that it sets are unknown here.
      }
    }
  }

  void check() {
    for (const Step& step : reading_.study.steps) {
      const auto at = reading_.step_nodes.find(step.name);
      const bool shell = is_shell(step.shell.empty() ? reading_.study.batch.shell : step.shell);
      if (at == reading_.step_nodes.end() || step.kind != StepKind::shell || !shell) continue;
      for_each_scalar(*at->second, [&](const yaml::Node& node, bool script) {
        if (script) check(node);
        if (script) check_places(node);
      });
    }
  }

 private:
  void check(const yaml::Node& node) {
    std::set<std::string_view> seen;
    const std::string_view script = node.text;
    for (auto token = find_braced(script, 0); token; token = find_braced(script, token->end)) {
      const std::string name(token->name);
      if (!seen.insert(token->name).second) continue;
      const char* what = meaning(name);
      if (what == nullptr || std::getenv(name.c_str()) != nullptr) continue;
      if (may_set(script, name) || may_set(sourced_, name)) continue;
      reading_.diagnostics.warning(
          place_of_text(reading_, node, fmt::format("${{{}}}", name)),
          fmt::format("'${{{0}}}' is the shell's, which has no variable '{0}'; the {1} is '$({0})'", name,
                      what));
    }
  }

  // Where the script changes its directory, or names the file somewhere else, too, it may know what it does.
  void check_places(const yaml::Node& node) {
    const fs::path folder = reading_.study.file.parent_path();
    if (folder.empty() || node.text.find("cd ") != std::string::npos) return;
    for (const std::string& word : scripts_run_by(node.text)) {
      const std::string name = word.starts_with("./") ? word.substr(2) : word;
      std::error_code none;
      if (name.empty() || !fs::is_regular_file(folder / name, none)) continue;
      if (count(node.text, "/" + name) > count(node.text, "./" + name)) continue;
      reading_.diagnostics.warning(
          place_of_text(reading_, node, word),
          fmt::format("'{0}' is beside the study, and a task runs in a directory of its own; write "
                      "$(SPECROOT)/{0}",
                      name));
    }
  }

  const char* meaning(const std::string& name) const {
    const Study& study = reading_.study;
    const auto has = [&](const auto& list, auto name_of) {
      return std::ranges::any_of(list, [&](const auto& item) { return name_of(item) == name; });
    };
    const auto first = [](const auto& pair) { return pair.first; };
    if (study.samples && has(study.samples->design.columns, [](const auto& c) { return c.name; }))
      return "column of the samples";
    if (has(study.parameters, [](const auto& p) { return p.name; })) return "parameter";
    if (has(study.variables, first)) return "variable";
    if (has(study.labels, first)) return "label";
    return nullptr;
  }

  Reading& reading_;
  std::string sourced_;  // the text of env.sources
};

}  // namespace

void check_shell_names(Reading& reading) {
  ShellNames(reading).check();
}

}  // namespace wflow::specs
