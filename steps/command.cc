// SPDX-License-Identifier: Apache-2.0
#include "steps/command.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/csv.h"
#include "base/error.h"
#include "base/text.h"

namespace wflow::steps {

namespace {

using Kind = specs::Piece::Kind;

void append_vector(std::string& text, const specs::SampleTable& samples, std::uint64_t row) {
  for (std::size_t column = 0; column < samples.columns().size(); ++column) {
    if (column > 0) text += ' ';
    text += samples.text(row, column);
  }
}

// True for pieces that are replaced by the cell of one column.
bool is_cell(Kind kind) {
  return kind == Kind::column || kind == Kind::quoted_column;
}

}  // namespace

bool has_sample_tokens(const specs::Pieces& pieces) {
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const auto& piece) { return piece.kind != Kind::literal; });
}

void check_columns(const specs::Pieces& pieces, const specs::SampleTable* samples) {
  for (const specs::Piece& piece : pieces) {
    if (!is_cell(piece.kind) && piece.kind != Kind::sample_vector) continue;
    if (samples == nullptr || (is_cell(piece.kind) && piece.column >= samples->columns().size())) {
      throw Error(ExitCode::data,
                  fmt::format("a command asks for sample column {}, and the table has {} of them",
                              piece.column, samples ? samples->columns().size() : 0));
    }
  }
}

std::string render(const specs::Pieces& pieces, const specs::SampleTable* samples, std::uint64_t row,
                   std::string_view sample_path, const BundleRows* bundle) {
  std::string text;
  for (const specs::Piece& piece : pieces) {
    switch (piece.kind) {
      case Kind::literal:
        text += piece.text;
        break;
      case Kind::column:
        text += samples->text(row, piece.column);
        break;
      case Kind::quoted_column:
        text += text::shell_quote(samples->text(row, piece.column));
        break;
      case Kind::sample_id:
        text += std::to_string(row);
        break;
      case Kind::sample_path:
        text += sample_path;
        break;
      case Kind::sample_vector:
        append_vector(text, *samples, row);
        break;
      case Kind::samples_file:
      case Kind::first_sample:
      case Kind::sample_count:
        if (bundle == nullptr) {
          throw Error(ExitCode::data,
                      "a command asks for the samples of a bundle, and its step has no bundle:");
        }
        text += piece.kind == Kind::samples_file   ? bundle->file
                : piece.kind == Kind::first_sample ? std::to_string(bundle->first)
                                                   : std::to_string(bundle->count);
        break;
    }
  }
  return text;
}

std::string samples_csv(const specs::SampleTable& samples, std::uint64_t first, std::uint64_t count) {
  const std::size_t columns = samples.columns().size();
  std::string text = "MERLIN_SAMPLE_ID";
  for (const std::string& name : samples.columns()) text += "," + csv::cell(name);
  text += '\n';
  for (std::uint64_t row = first; row < first + count; ++row) {
    text += std::to_string(row);
    for (std::size_t column = 0; column < columns; ++column) {
      text += ',';
      text += csv::cell(samples.text(row, column));
    }
    text += '\n';
  }
  return text;
}

namespace {

// Builtins and reserved words of bash 5.2, dash, ksh and zsh in the position of a command.
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

// Returns the position of the closing quote of the text that begins at `begin`; npos if the text is not
// plain.
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

// True if bash would run other commands before this one or instead of it.
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
  if (name.find('/') != std::string::npos) return name;  // the kernel resolves it from the task's directory
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
