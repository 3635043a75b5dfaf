// SPDX-License-Identifier: Apache-2.0
// The words of `wflow exec [OPTIONS] [--] COMMAND... [::: ARGUMENT... | :::: FILE...]...`, and the table of
// arguments that wflow makes of them: a file of rows, one a command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/exec/placeholders.h"

namespace wflow::cli {

// `::: a b`; with `:::+ c d` behind it, rows (a, c) and (b, d). `:::: file` is a list of the file's lines.
struct ArgumentList {
  std::vector<std::string> values;
  bool linked = false;  // row by row with the list before it (:::+), else combined with every row before it
  std::string file;     // a file whose lines are the values; "-": standard input; empty: the values are given
};

struct ExecWords {
  std::vector<std::string> command;  // empty: each line of the input is a command
  std::vector<ArgumentList> lists;
};

// Splits the words into the command and its lists, without reading a file. Error{usage} for `:::+` and
// `::::+` without a list before them, and for `::::` without a file.
ExecWords read_exec_words(const std::vector<std::string>& words);

// Reads the files of the lists. Error{data} if a file does not exist, Error{usage} for linked lists of
// unequal length and for standard input that is named twice.
void read_list_files(std::vector<ArgumentList>& lists);

// Writes rows one by one, so that their number has no limit. A file of one column is `.lines`, else `.tsv`.
class ArgumentTable {
 public:
  // `folder` must exist. Without columns, a column that counts the rows is added.
  ArgumentTable(const std::filesystem::path& folder, std::vector<ArgumentColumn> columns);

  // Error{usage} for an argument with a line end, or with a tab if there are several columns.
  void add(const std::vector<std::string>& arguments);
  // Writes the rows so far to the file.
  void flush();

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

// Adds every row of the lists, the last list changing fastest.
void add_lists(const std::vector<ArgumentList>& lists, ArgumentTable& table);

// When to wait no longer for lines.
struct WaitUntil {
  int descriptor = -1;                                      // becomes readable; -1: none
  double time_s = std::numeric_limits<double>::infinity();  // of steady_now_s()
};

// The lines of an open file as they come: each that is not empty is an argument. Reads no more of a pipe than
// it is asked for, so that the program that writes it waits.
class LineStream {
 public:
  // `fd`: open as long as this; `name`: for messages.
  LineStream(int fd, std::filesystem::path name) : fd_(fd), name_(std::move(name)) {}

  // Waits for a line, and adds what has come to the table: until the input pauses and `least_s` have passed,
  // or it has come without a pause for kReadMost_s. A regular file is read to its end. Error{data} if the
  // input is not text.
  void add_to(ArgumentTable& table, double least_s, const WaitUntil& until);
  void add_all(ArgumentTable& table);
  bool ended() const { return ended_; }

 private:
  static constexpr double kReadMost_s = 0.5;

  bool comes_within(double seconds, const WaitUntil& until) const;
  void read_more(ArgumentTable& table);
  void add_line(std::string_view line, ArgumentTable& table);

  int fd_;
  std::filesystem::path name_;
  std::string rest_;  // the begin of a line
  std::uint64_t lines_ = 0;
  bool ended_ = false;
};

}  // namespace wflow::cli
