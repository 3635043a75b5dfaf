// SPDX-License-Identifier: Apache-2.0
// The words of `wflow exec [OPTIONS] [--] COMMAND... [::: ARGUMENT... | :::: FILE...]...`.
#pragma once

#include <string>
#include <vector>

namespace wflow::cli {

// `::: a b`; with `:::+ c d` behind it, rows (a, c) and (b, d). `:::: file` is a list of the file's lines.
struct ArgumentList {
  std::vector<std::string> values;
  bool linked = false;  // row by row with the list before it (:::+), else combined with every row before it
  std::string file;     // whose lines are the values; "-": standard input; empty: the values are given
};

struct ExecWords {
  std::vector<std::string> command;  // empty: each line of the input is a command
  std::vector<ArgumentList> lists;
};

// Takes the command and its lists apart; reads no file. Error{usage} for `:::+` and `::::+` without a list before
// them, and for `::::` without a file.
ExecWords read_exec_words(const std::vector<std::string>& words);

// Reads the files of the lists. Error{data} where there is no such file, Error{usage} for linked lists of unequal
// length and for standard input that is named twice.
void read_list_files(std::vector<ArgumentList>& lists);

}  // namespace wflow::cli
