// SPDX-License-Identifier: Apache-2.0
#include "specs/study/tokens.h"

#include <pwd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "base/text.h"

namespace wflow::specs {

namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

bool is_script_key(const yaml::Node& key) {
  return key.text == "cmd" || key.text == "restart" || key.text == "setup";
}

}  // namespace

std::optional<Token> find_token(std::string_view text, std::size_t from) {
  while (from < text.size()) {
    const std::size_t begin = text.find("$(", from);
    if (begin == std::string_view::npos) return std::nullopt;
    const std::size_t end = text.find_first_of("()$\n\"'`", begin + 2);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view name = text.substr(begin + 2, end - begin - 2);
    const bool framed = text[end] == ')' && !name.empty() && name.front() != ' ' && name.back() != ' ';
    if (framed) return Token{begin, end + 1, name};
    from = begin + 2;
  }
  return std::nullopt;
}

bool has_token(const yaml::Node& node) {
  if (node.is_scalar()) return find_token(node.text).has_value();
  return std::ranges::any_of(node.items, has_token) ||
         std::ranges::any_of(node.entries, [](const auto& entry) { return has_token(entry.second); });
}

bool mentions(std::string_view text, std::string_view name) {
  for (auto token = find_token(text); token; token = find_token(text, token->end)) {
    if (token->name == name) return true;
  }
  return false;
}

std::string replace_tokens(std::string_view text, const Resolver& resolver, int levels) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  std::string result;
  std::size_t done = 0;
  for (auto token = find_token(text); token && result.size() < kMaxBytes;
       token = find_token(text, token->end)) {
    const auto value = resolver(token->name);
    if (!value) continue;
    result += text.substr(done, token->begin - done);
    done = token->end;
    result += levels > 0 ? replace_tokens(std::string_view(*value), resolver, levels - 1) : *value;
  }
  return result += text.substr(done);
}

void replace_tokens(yaml::Node& node, const Resolver& resolver, int levels) {
  if (node.is_scalar() && node.text.find("$(") != std::string::npos) {
    node.text = replace_tokens(std::string_view(node.text), resolver, levels);
  }
  for (yaml::Node& item : node.items) replace_tokens(item, resolver, levels);
  for (auto& [key, value] : node.entries) {
    replace_tokens(key, resolver, levels);
    replace_tokens(value, resolver, levels);
  }
}

std::string expand_shell(const std::string& text) {
  std::string result;
  std::size_t at = 0;
  if (text.starts_with('~')) {
    at = std::min(text.find('/'), text.size());
    const std::string user = text.substr(1, at - 1);
    const char* home = user.empty() ? std::getenv("HOME") : nullptr;
    if (const passwd* entry = user.empty() ? nullptr : ::getpwnam(user.c_str())) home = entry->pw_dir;
    result = home != nullptr ? std::string(home) : text.substr(0, at);
  }
  while (at < text.size()) {
    const std::size_t dollar = text.find('$', at);
    result += text.substr(at, dollar - at);
    if (dollar == std::string::npos) break;
    const bool braced = text.compare(dollar, 2, "${") == 0;
    const std::size_t first = dollar + (braced ? 2 : 1);
    std::size_t last = first;
    while (last < text.size() && is_word(text[last])) ++last;
    const bool whole = last > first && (!braced || (last < text.size() && text[last] == '}'));
    const char* value = whole ? std::getenv(text.substr(first, last - first).c_str()) : nullptr;
    at = whole && braced ? last + 1 : last;
    result += value != nullptr ? std::string(value) : text.substr(dollar, at - dollar);
  }
  return result;
}

void expand_shell(yaml::Node& node) {
  if (node.is_scalar() && node.text.find_first_of("$~") != std::string::npos)
    node.text = expand_shell(node.text);
  for (yaml::Node& item : node.items) expand_shell(item);
  for (auto& [key, value] : node.entries) {
    if (!is_script_key(key)) expand_shell(value);
  }
}

void for_each_scalar(const yaml::Node& node, const std::function<void(const yaml::Node&, bool)>& use,
                     bool script) {
  if (node.is_scalar()) use(node, script);
  for (const yaml::Node& item : node.items) for_each_scalar(item, use, script);
  for (const auto& [key, value] : node.entries) {
    use(key, false);
    for_each_scalar(value, use, is_script_key(key));
  }
}

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
  return true;  // no interpreter means /bin/bash
}

bool is_shell_builtin(std::string_view name) {
  constexpr std::array<std::string_view, 12> kBuiltins = {"pwd",  "times", "umask",   "jobs",
                                                          "dirs", "alias", "ulimit",  "hash",
                                                          "set",  "trap",  "history", "declare"};
  return std::find(kBuiltins.begin(), kBuiltins.end(), name) != kBuiltins.end();
}

}  // namespace wflow::specs
