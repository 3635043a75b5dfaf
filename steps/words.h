// SPDX-License-Identifier: Apache-2.0
// Commands that need no shell (docs/launching.md): one line of plain words, whose program can be started as
// it is.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::steps {

// The words of a command that every POSIX shell and bash would take literally; none where it holds anything
// that a shell does something with (expansions, globs, redirections, lists, comments, assignments before the
// command, several lines), a quote that is not plain, or a letter beyond ASCII outside quotes.
std::optional<std::vector<std::string>> plain_words(std::string_view command);

// Whether a shell would run something else under this name than the program of that name: builtins and
// reserved words. Not `true` and `false`, whose programs do the same.
bool is_shell_word(std::string_view name);

// What a shell would start for `name` in a task with this environment ("KEY=value" each): a path, or `name`
// itself where it has a slash. None where only a shell can tell: a builtin, a program that is not found,
// relative parts in PATH, or an environment that changes what bash does (BASH_ENV, SHELLOPTS, BASHOPTS, a
// function of that name).
std::optional<std::string> program_path(const std::string& name, std::span<const std::string> environment);

// Whether `interpreter` (the words of a "#!" line) takes a script's text after "-c".
bool takes_text(std::span<const std::string> interpreter);

}  // namespace wflow::steps
