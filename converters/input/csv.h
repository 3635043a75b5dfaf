// SPDX-License-Identifier: Apache-2.0
// Comma-separated text with a header line; fields may stand in double quotes (RFC 4180, without line breaks
// in fields).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::converters {

class CsvReader {
 public:
  // Throws Error{data} with the line where the text is not a table; `name` is the file's.
  CsvReader(std::string_view text, std::string name);

  const std::vector<std::string>& header() const { return header_; }
  std::optional<std::size_t> column(std::string_view name) const;
  // The next row, as long as the header; false at the end. Empty lines are passed over.
  bool next(std::vector<std::string>& fields);
  int line() const { return line_; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  bool next_line(std::vector<std::string>& fields);
  std::vector<std::string> split(std::string_view line) const;

  std::string_view text_;
  std::string name_;
  int line_ = 0;
  std::vector<std::string> header_;
};

}  // namespace wflow::converters
