// SPDX-License-Identifier: Apache-2.0
// $(NAME) in text, and the names that wflow (and Merlin before it) reserves.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"
#include "specs/plan/template.h"

namespace wflow::specs {

struct Token {
  std::size_t begin = 0;  // begin of "$("
  std::size_t end = 0;    // behind ")"
  std::string_view name;
};

// The next token at or behind `from`. A name is anything in one line without parentheses, "$", quotes and
// blanks at its ends; the caller decides whether it is a token or a shell's $(command).
std::optional<Token> find_token(std::string_view text, std::size_t from = 0);

bool mentions(std::string_view text, std::string_view name);

// True if a scalar below `node`, but no key, has a token.
bool has_token(const yaml::Node& node);

// Returns the value of a name; nothing: the token stays unchanged.
using Resolver = std::function<std::optional<std::string>(std::string_view)>;

// Replaces tokens. Their values may contain tokens again (env.labels name parameters), which are replaced
// down to `levels`. Stops when the text has grown beyond 64 MiB.
std::string replace_tokens(std::string_view text, const Resolver& resolver, int levels = 0);

inline constexpr int kTokenLevels = 3;

// Replaces tokens in all scalars below `node`, keys too.
void replace_tokens(yaml::Node& node, const Resolver& resolver, int levels = 0);

// $X, ${X} and a leading ~ from the caller's environment; unset variables stay.
std::string expand_shell(const std::string& text);
// In all scalars below `node` but under the keys `cmd` and `restart`, which the task's shell expands.
void expand_shell(yaml::Node& node);

// Calls `use` for every scalar below `node`, with true for the bodies of scripts (cmd, restart).
void for_each_scalar(const yaml::Node& node, const std::function<void(const yaml::Node&, bool script)>& use,
                     bool script = false);

// Every reserved word but OUTPUT_PATH, which a study may set.
const std::vector<std::string>& reserved_names();

// Words that are reserved only in a study with iterate:; other studies may have variables of these names.
const std::vector<std::string>& iteration_names();

// The exit codes of a step: MERLIN_SUCCESS and so on.
std::optional<int> return_code(std::string_view name);

// Merlin's per-sample tokens, in any case.
std::optional<Piece::Kind> sample_token(std::string_view name);

// The parameter that a name belongs to: P for "P.label" and "P.name"; otherwise the name itself.
std::string_view parameter_of(std::string_view name);

// "quote:NAME" is the cell of column NAME, quoted as one word of a shell.
inline constexpr std::string_view kQuote = "quote:";
constexpr std::string_view without_quote(std::string_view name) {
  return name.starts_with(kQuote) ? name.substr(kQuote.size()) : name;
}

// The text in upper case.
std::string upper(std::string_view text);

// Makes a directory name as Maestro does: letters, digits and "-_.() " stay, blanks become "_".
std::string clean_path(std::string_view name);

// True if the interpreter of a script ("/usr/bin/env bash", "/bin/zsh -e") is a shell.
bool is_shell(std::string_view interpreter);

// True for commands that are built into a shell: $(pwd) is not an undefined variable.
bool is_shell_builtin(std::string_view name);

}  // namespace wflow::specs
