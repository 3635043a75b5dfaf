// SPDX-License-Identifier: Apache-2.0
// Translates the placeholders of a command, which are those of GNU parallel, to the study language.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::cli {

// The part of an argument that a placeholder stands for.
enum class ArgumentPart {
  whole,
  root,    // {.}: without its extension
  name,    // {/}: without its folders
  folder,  // {//}
  stem,    // {/.}: without folders and extension
  number,  // {#}: the number of the command, from 1, instead of a part
};

std::string part_of(std::string_view argument, ArgumentPart part);

// A column of the table of arguments: a part of the argument at this place.
struct ArgumentColumn {
  std::size_t argument = 0;
  ArgumentPart part = ArgumentPart::whole;
  std::string name;
};

// A piece of a text with placeholders that is only printed (--tagstring): literal text, or a column's value.
struct TextPiece {
  std::string text;  // or the name of the column; kNumberPiece: the number of the command
  bool is_column = false;
};
inline constexpr const char* kNumberPiece = "#";

struct ExecText {
  std::vector<TextPiece> pieces;
  std::vector<ArgumentColumn> columns;
};

struct ExecCommand {
  std::string text;                     // `cmd:` of the step
  std::vector<ArgumentColumn> columns;  // the columns that the table of arguments must have
};

// Several words are the words of the program and stay literal; a single word is a line for the shell, in
// which only the arguments are quoted. `names`: the names of the arguments. {1} is the first argument, {} all
// of them with blanks between, {name} one by its name, {#} the number of the command, from 1, {%} the slot of
// the worker that it runs in, from 1. A command
// without placeholders gets {} at its end. `own_table`: wflow writes the table of arguments, so that {.},
// {/}, {//}, {/.} and {1.} ... are placeholders. Error{usage} for an unknown {word} or {3}; after a backslash
// they are text. Text that does not look like a placeholder stays as it is. The command runs in `folder`.
ExecCommand exec_command(const std::vector<std::string>& words, const std::vector<std::string>& names,
                         bool own_table, const std::string& folder);

// The same placeholders, except {%}, in a text that no shell reads.
ExecText exec_text(const std::string& text, const std::vector<std::string>& names, bool own_table);

// Recovers the user's command from the one that runs: removes the part that enters `folder`.
std::string without_folder(std::string_view text, const std::string& folder);

// The command for input whose lines are the commands, and the column that contains them.
ExecCommand exec_lines(const std::string& folder);

// The words that a shell would interpret (>, |, &&): here they are arguments of the program.
std::vector<std::string> shell_operators(const std::vector<std::string>& words);

}  // namespace wflow::cli
