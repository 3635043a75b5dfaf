// SPDX-License-Identifier: Apache-2.0
// The words of `wflow exec [OPTIONS] [--] COMMAND... [::: ARGUMENT... | :::: FILE...]...`, and the table of arguments that
// wflow makes of them: a file of rows, one a command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/exec/placeholders.h"

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

// Writes rows as they come, whatever their number. Of one column the file is `.lines`, else `.tsv`.
class ArgumentTable {
 public:
  // `folder` is there. Without columns there is one that counts the rows.
  ArgumentTable(const std::filesystem::path& folder, std::vector<ArgumentColumn> columns);

  // Error{usage} for what no row can hold: a line end, and beside other columns a tab.
  void add(const std::vector<std::string>& arguments);
  void close();

  const std::filesystem::path& file() const { return file_; }
  std::uint64_t rows() const { return rows_; }
  std::vector<std::string> column_names() const;

 private:
  void check(std::string_view cell) const;

  std::filesystem::path file_;
  std::vector<ArgumentColumn> columns_;
  FileDescriptor fd_;
  std::string buffer_;
  std::uint64_t rows_ = 0;
};

// Every row of the lists, the last list changing fastest.
void add_lists(const std::vector<ArgumentList>& lists, ArgumentTable& table);

// Every line of an open file that is not empty, as one argument.
void add_lines(int fd, const std::filesystem::path& name, ArgumentTable& table);

}  // namespace wflow::cli
