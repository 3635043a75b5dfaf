// SPDX-License-Identifier: Apache-2.0
// The table of arguments of `wflow exec`: a file of rows, one a command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/exec/placeholders.h"
#include "cli/exec/words.h"

namespace wflow::cli {

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
