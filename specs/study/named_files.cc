// SPDX-License-Identifier: Apache-2.0
#include "specs/study/study.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace wflow::specs {

namespace {

// Characters that end a path in a shell's text. A path that contains a token or a pattern is not one file.
constexpr std::string_view kEnds = " \t\n\r\"'`;|&<>(){},:=";
constexpr std::string_view kVaries = "$*?[";

// The word before the path, and the mark of a redirection: a file that is written is not a source.
bool is_written(std::string_view before) {
  while (!before.empty() && (before.back() == '"' || before.back() == '\'')) before.remove_suffix(1);
  while (!before.empty() && (before.back() == ' ' || before.back() == '\t')) before.remove_suffix(1);
  if (before.ends_with('>') || before.ends_with(">|") || before.ends_with(">&")) return true;
  const std::size_t line = before.find_last_of("\n;|&(");
  std::string_view command = line == std::string_view::npos ? before : before.substr(line + 1);
  while (!command.empty() && (command.front() == ' ' || command.front() == '\t')) command.remove_prefix(1);
  const std::string_view program = command.substr(0, command.find_first_of(" \t"));
  constexpr std::string_view kWriters[] = {"tee", "touch", "mkdir", "rm", "rmdir", "truncate"};
  return std::find(std::begin(kWriters), std::end(kWriters), program) != std::end(kWriters);
}

void find_in(std::string_view text, const std::string& folder, std::vector<std::string>& found) {
  for (std::size_t at = text.find(folder); at != std::string_view::npos; at = text.find(folder, at + 1)) {
    // "/data" in "/scratch/data/x" is another folder.
    if (at > 0 && kEnds.find(text[at - 1]) == std::string_view::npos) continue;
    const std::size_t end = std::min(text.find_first_of(kEnds, at), text.size());
    const std::string_view path = text.substr(at, end - at);
    const bool token = end < text.size() && end + 1 < text.size() && path.ends_with('$') && text[end] == '(';
    if (token || path.find_first_of(kVaries) != std::string_view::npos || is_written(text.substr(0, at)))
      continue;
    const std::string file = std::filesystem::path(path.substr(folder.size())).lexically_normal().string();
    if (file.empty() || file == "." || file.ends_with('/') || file.starts_with("..")) continue;
    if (std::find(found.begin(), found.end(), file) == found.end()) found.push_back(file);
  }
}

}  // namespace

std::vector<std::string> named_files(const Study& study, const Step& step) {
  std::vector<std::string> found;
  const std::string folder = study.file.parent_path().string() + "/";
  if (step.sources_off || folder.size() <= 1) return found;
  find_in(step.command, folder, found);
  find_in(step.restart, folder, found);
  return found;
}

}  // namespace wflow::specs
