// SPDX-License-Identifier: Apache-2.0
#include "specs/study/names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/text.h"

namespace wflow::specs {

namespace {

constexpr std::array<std::pair<std::string_view, int>, 7> kReturnCodes = {{{"MERLIN_SUCCESS", 0},
                                                                           {"MERLIN_RESTART", 100},
                                                                           {"MERLIN_SOFT_FAIL", 101},
                                                                           {"MERLIN_HARD_FAIL", 102},
                                                                           {"MERLIN_RETRY", 104},
                                                                           {"MERLIN_STOP_WORKERS", 105},
                                                                           {"MERLIN_RAISE_ERROR", 106}}};

constexpr std::array<std::pair<std::string_view, Piece::Kind>, 6> kSampleTokens = {
    {{"merlin_sample_id", Piece::Kind::sample_id},
     {"merlin_sample_path", Piece::Kind::sample_path},
     {"merlin_sample_vector", Piece::Kind::sample_vector},
     {"wflow_samples_file", Piece::Kind::samples_file},
     {"wflow_first", Piece::Kind::first_sample},
     {"wflow_count", Piece::Kind::sample_count}}};

}  // namespace

const std::vector<std::string>& reserved_names() {
  static const std::vector<std::string> kNames = {"SPECROOT",
                                                  "WORKSPACE",
                                                  "LAUNCHER",
                                                  "VLAUNCHER",
                                                  "MERLIN_TIMESTAMP",
                                                  "MERLIN_WORKSPACE",
                                                  "MERLIN_INFO",
                                                  "MERLIN_SPEC_ORIGINAL_TEMPLATE",
                                                  "MERLIN_SPEC_EXECUTED_RUN",
                                                  "MERLIN_SPEC_ARCHIVED_COPY",
                                                  "MERLIN_SAMPLE_ID",
                                                  "MERLIN_SAMPLE_PATH",
                                                  "MERLIN_SAMPLE_VECTOR",
                                                  "MERLIN_SAMPLE_NAMES",
                                                  "WFLOW_SAMPLES_FILE",
                                                  "WFLOW_FIRST",
                                                  "WFLOW_COUNT",
                                                  "MERLIN_GLOB_PATH",
                                                  "MERLIN_PATHS_ALL",
                                                  "MERLIN_SUCCESS",
                                                  "MERLIN_RESTART",
                                                  "MERLIN_SOFT_FAIL",
                                                  "MERLIN_HARD_FAIL",
                                                  "MERLIN_RETRY",
                                                  "MERLIN_STOP_WORKERS",
                                                  "MERLIN_RAISE_ERROR"};
  return kNames;
}

const std::vector<std::string>& iteration_names() {
  static const std::vector<std::string> kNames = {"ITERATION", "PREVIOUS", "FIRST_ITERATION"};
  return kNames;
}

std::optional<int> return_code(std::string_view name) {
  for (const auto& [known, code] : kReturnCodes) {
    if (known == name) return code;
  }
  return std::nullopt;
}

std::optional<Piece::Kind> sample_token(std::string_view name) {
  const std::string word = text::lower(name);
  for (const auto& [known, kind] : kSampleTokens) {
    if (known == word) return kind;
  }
  return std::nullopt;
}

std::string_view parameter_of(std::string_view name) {
  for (const std::string_view suffix : {".label", ".name"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

std::string clean_path(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c == ' ') {
      result += '_';
    } else if (std::isalnum(static_cast<unsigned char>(c)) ||
               std::string_view("-_.()").find(c) != std::string_view::npos) {
      result += c;
    }
  }
  return result;
}

bool is_shell(std::string_view interpreter) {
  constexpr std::array<std::string_view, 9> kShells = {"sh",  "bash", "dash", "ash", "ksh",
                                                       "zsh", "csh",  "tcsh", "fish"};
  for (const std::string& word : text::split(text::trim(interpreter), ' ')) {
    const std::string name = word.substr(word.rfind('/') + 1);
    const bool of_env = name == "env" || word.starts_with('-') || word.find('=') != std::string::npos;
    if (word.empty() || of_env) continue;
    return std::find(kShells.begin(), kShells.end(), name) != kShells.end();
  }
  return true;  // nothing is /bin/bash
}

bool is_shell_builtin(std::string_view name) {
  constexpr std::array<std::string_view, 12> kBuiltins = {"pwd",  "times", "umask",   "jobs",
                                                          "dirs", "alias", "ulimit",  "hash",
                                                          "set",  "trap",  "history", "declare"};
  return std::find(kBuiltins.begin(), kBuiltins.end(), name) != kBuiltins.end();
}

}  // namespace wflow::specs
