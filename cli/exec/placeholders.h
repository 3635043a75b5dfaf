// SPDX-License-Identifier: Apache-2.0
// The placeholders of a command, as GNU parallel has them, in the study language.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::cli {

// What is taken of an argument.
enum class ArgumentPart {
  whole,
  root,    // {.}: without its extension
  name,    // {/}: without its folders
  folder,  // {//}
  stem,    // {/.}: without folders and extension
  number,  // {#}: no part, but the number of the command from 1
};

std::string part_of(std::string_view argument, ArgumentPart part);

// A column of the table of arguments: a part of the argument at this place.
struct ArgumentColumn {
  std::size_t argument = 0;
  ArgumentPart part = ArgumentPart::whole;
  std::string name;
};

struct ExecCommand {
  std::string text;                     // `cmd:` of the step
  std::vector<ArgumentColumn> columns;  // what the table of arguments must hold
};

// Several words are words of the program, whatever is in them; a single one is a line for the shell, in which
// only the arguments are quoted. `names`: of the arguments; {1} is the first of them, {} all, blank
// separated, {name} one by its name, {#} the number of the command from 1. A command without any gets {} at
// its end. `own_table`: whether wflow writes the table of arguments: then {.}, {/}, {//}, {/.} and {1.} ... are
// placeholders. Error{usage} for {word} and {3} that stand for nothing; after a backslash they are text. What looks
// like no placeholder stays as it is. Runs in `folder`.
ExecCommand exec_command(const std::vector<std::string>& words, const std::vector<std::string>& names,
                         bool own_table, const std::string& folder);

// The command that a user gave, of one as it runs: without what enters `folder`.
std::string without_folder(std::string_view text, const std::string& folder);

// Lines of the input are the commands: the column that holds them.
ExecCommand exec_lines(const std::string& folder);

// The words that a shell would have acted on (>, |, &&): as words they are arguments of the program.
std::vector<std::string> shell_operators(const std::vector<std::string>& words);

}  // namespace wflow::cli
