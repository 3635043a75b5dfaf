// SPDX-License-Identifier: Apache-2.0
#include "steps/words.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace wflow::steps {

namespace {

// Builtins and reserved words of bash 5.2, dash, ksh and zsh that stand where a command does.
constexpr std::array<std::string_view, 101> kShellWords = {
    "!",        ".",        ":",       "[",        "[[",      "alias",    "autoload",  "bg",        "bind",
    "bindkey",  "break",    "builtin", "bye",      "caller",  "case",     "cd",        "chdir",     "command",
    "compgen",  "complete", "compopt", "continue", "coproc",  "declare",  "dirs",      "disable",   "disown",
    "do",       "done",     "echo",    "elif",     "else",    "emulate",  "enable",    "esac",      "eval",
    "exec",     "exit",     "export",  "fc",       "fg",      "fi",       "float",     "for",       "foreach",
    "function", "getopts",  "hash",    "help",     "history", "if",       "in",        "integer",   "jobs",
    "kill",     "let",      "limit",   "local",    "logout",  "mapfile",  "nameref",   "nocorrect", "noglob",
    "popd",     "print",    "printf",  "pushd",    "pwd",     "read",     "readarray", "readonly",  "rehash",
    "repeat",   "return",   "sched",   "select",   "set",     "setopt",   "shift",     "shopt",     "source",
    "stop",     "suspend",  "test",    "then",     "time",    "times",    "trap",      "type",      "typeset",
    "ulimit",   "umask",    "unalias", "unlimit",  "unset",   "unsetopt", "until",     "wait",      "whence",
    "where",    "while"};

bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') ||
         std::string_view("_-+.,:/@%=").find(letter) != std::string_view::npos;
}

// The end of the quoted text that begins at `begin`, before its closing quote; npos where it is not plain.
std::size_t end_of_quoted(std::string_view text, std::size_t begin, char quote) {
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (text[i] == quote) return i;
    if (text[i] == '\n' || text[i] == '\0') break;
    if (quote == '"' && std::string_view("$`\\!").find(text[i]) != std::string_view::npos) break;
  }
  return std::string_view::npos;
}

std::string_view value_of(std::span<const std::string> environment, std::string_view key) {
  for (const std::string& variable : environment) {
    if (variable.size() > key.size() && variable[key.size()] == '=' && variable.starts_with(key)) {
      return std::string_view(variable).substr(key.size() + 1);
    }
  }
  return {};
}

bool is_program(const std::string& path) {
  struct stat status {};
  return ::access(path.c_str(), X_OK) == 0 && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// Whether bash would run anything before the command, or something else in its place.
bool changes_bash(std::span<const std::string> environment, const std::string& name) {
  const std::string function = "BASH_FUNC_" + name;
  return std::any_of(environment.begin(), environment.end(), [&](const std::string& variable) {
    return variable.starts_with("BASH_ENV=") || variable.starts_with("SHELLOPTS=") ||
           variable.starts_with("BASHOPTS=") || variable.starts_with(function + "%%=") ||
           variable.starts_with(function + "()=");
  });
}

}  // namespace

std::optional<std::vector<std::string>> plain_words(std::string_view command) {
  const std::size_t end_of_line = command.find_last_not_of('\n');
  const std::string_view text = command.substr(0, end_of_line + 1);
  std::vector<std::string> words;
  bool within = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == ' ' || letter == '\t') {
      within = false;
      continue;
    }
    if (!within) {
      if (letter == '=') return std::nullopt;  // zsh looks such words up
      words.emplace_back();
    }
    within = true;
    if (letter == '\'' || letter == '"') {
      const std::size_t end = end_of_quoted(text, i + 1, letter);
      if (end == std::string_view::npos) return std::nullopt;
      words.back() += text.substr(i + 1, end - i - 1);
      i = end;
    } else if (is_plain(letter)) {
      words.back() += letter;
    } else {
      return std::nullopt;
    }
  }
  if (words.empty() || words.front().empty() || words.front().find('=') != std::string::npos)
    return std::nullopt;
  return words;
}

bool is_shell_word(std::string_view name) {
  return std::find(kShellWords.begin(), kShellWords.end(), name) != kShellWords.end();
}

std::optional<std::string> program_path(const std::string& name, std::span<const std::string> environment) {
  if (is_shell_word(name) || changes_bash(environment, name)) return std::nullopt;
  if (name.find('/') != std::string::npos) return name;  // the kernel takes it from the task's directory
  for (const std::string& folder : text::split(value_of(environment, "PATH"), ':')) {
    if (!folder.starts_with('/')) return std::nullopt;
    std::string path = folder + "/" + name;
    if (is_program(path)) return path;
  }
  return std::nullopt;
}

bool takes_text(std::span<const std::string> interpreter) {
  constexpr std::array<std::string_view, 6> kShells = {"sh", "bash", "dash", "ash", "ksh", "zsh"};
  const auto is_shell = [&](const std::string& path) {
    return std::find(kShells.begin(), kShells.end(), path.substr(path.rfind('/') + 1)) != kShells.end();
  };
  if (interpreter.size() == 1) return is_shell(interpreter[0]);
  if (interpreter.size() != 2) return false;
  if (interpreter[0].ends_with("/env")) return is_shell(interpreter[1]);
  return is_shell(interpreter[0]) && interpreter[1].starts_with('-');
}

}  // namespace wflow::steps
