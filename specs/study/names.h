// SPDX-License-Identifier: Apache-2.0
// The names that wflow (and Merlin before it) gives a meaning of its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::specs {

// Every reserved word but OUTPUT_PATH, which a study may set.
const std::vector<std::string>& reserved_names();

// The words that are reserved in a study with iterate: alone: others may have variables of these names.
const std::vector<std::string>& iteration_names();

// MERLIN_SUCCESS and its like: the exit codes of a step.
std::optional<int> return_code(std::string_view name);

// Merlin's per-sample tokens, in any case.
std::optional<Piece::Kind> sample_token(std::string_view name);

// "P.label" and "P.name" are of P; any other name is itself.
std::string_view parameter_of(std::string_view name);

// "quote:NAME" asks for the cell of column NAME as one word of a shell.
inline constexpr std::string_view kQuote = "quote:";
constexpr std::string_view without_quote(std::string_view name) {
  return name.starts_with(kQuote) ? name.substr(kQuote.size()) : name;
}

// In capitals.
std::string upper(std::string_view text);

// A directory name as Maestro makes it: letters, digits and "-_.() " stay, blanks become "_".
std::string clean_path(std::string_view name);

// Whether the interpreter of a script ("/usr/bin/env bash", "/bin/zsh -e") is a shell.
bool is_shell(std::string_view interpreter);

// Programs that a shell has built in: $(pwd) is no undefined variable.
bool is_shell_builtin(std::string_view name);

}  // namespace wflow::specs
