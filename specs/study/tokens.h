// SPDX-License-Identifier: Apache-2.0
// $(NAME) in text.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/yaml.h"

namespace wflow::specs {

struct Token {
  std::size_t begin = 0;  // of "$("
  std::size_t end = 0;    // behind ")"
  std::string_view name;
};

// The next token at or behind `from`. A name is anything in one line without parentheses, "$", quotes and
// blanks at its ends; whether it is one of ours or a shell's $(command) is for the caller to say.
std::optional<Token> find_token(std::string_view text, std::size_t from = 0);

bool mentions(std::string_view text, std::string_view name);

// What a name stands for; nothing: the token stays as it is.
using Resolver = std::function<std::optional<std::string>(std::string_view)>;

// Replaces tokens. What they stand for may hold tokens again (env.labels name parameters): those too, down to
// `levels`. Text that has grown beyond 64 MiB grows no more.
std::string replace_tokens(std::string_view text, const Resolver& resolver, int levels = 0);

inline constexpr int kTokenLevels = 3;

// Replaces tokens in all scalars below `node`, keys too.
void replace_tokens(yaml::Node& node, const Resolver& resolver, int levels = 0);

// $X, ${X} and a leading ~ from the caller's environment; what is not set stays.
std::string expand_shell(const std::string& text);
// In all scalars below `node` but under the keys `cmd` and `restart`, which the task's shell expands.
void expand_shell(yaml::Node& node);

// Calls `use` for every scalar below `node`, with true for the bodies of scripts (cmd, restart).
void for_each_scalar(const yaml::Node& node, const std::function<void(const yaml::Node&, bool script)>& use,
                     bool script = false);

}  // namespace wflow::specs
