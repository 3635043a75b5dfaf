// SPDX-License-Identifier: Apache-2.0
// The words of `wflow exec [OPTIONS] [--] COMMAND... [::: ARGUMENT...]...`.
#pragma once

#include <string>
#include <vector>

namespace wflow::cli {

// `::: a b`; with `:::+ c d` behind it, rows (a, c) and (b, d).
struct ArgumentList {
  std::vector<std::string> values;
  bool linked = false;  // row by row with the list before it (:::+), else combined with every row before it
};

struct ExecWords {
  std::vector<std::string> command;  // empty: each line of the input is a command
  std::vector<ArgumentList> lists;
};

// Takes the command and its lists apart. Error{usage} for `:::+` without a list before it, and for linked
// lists of unequal length.
ExecWords read_exec_words(const std::vector<std::string>& words);

}  // namespace wflow::cli
