// SPDX-License-Identifier: Apache-2.0
// Tables of text: the lines of a file of any size, the cells of a line, and RFC 4180 with a header line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace wflow::csv {

// A longer line means that the file is no table.
inline constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;

struct Line {
  std::string_view text;     // without line end and byte order mark; valid until the next call
  std::uint64_t offset = 0;  // its first byte in the file
  std::uint64_t number = 0;  // 1 for the reader's first line
};

// Reads a file line by line, with a megabyte of it in memory. Throws Error{data} with file and line if it is
// not text, Error{system} if reading fails.
class LineReader {
 public:
  // The bytes [from, to) of an open file, which must stay open.
  LineReader(int fd, std::filesystem::path file, std::uint64_t from = 0,
             std::uint64_t to = std::numeric_limits<std::uint64_t>::max());

  bool next(Line& line) {
    for (;;) {
      const char* begin = buffer_.data() + begin_;
      const auto* end =
          static_cast<const char*>(std::memchr(buffer_.data() + searched_, '\n', end_ - searched_));
      if (end == nullptr && !at_end_) {
        searched_ = end_;
        read_more();
        continue;
      }
      if (end == nullptr && begin_ == end_) return false;
      const char* stop = end == nullptr ? buffer_.data() + end_ : end;
      line.text = {begin, static_cast<std::size_t>(stop - begin)};
      line.offset = base_ + begin_;
      line.number = ++number_;
      begin_ = searched_ = static_cast<std::size_t>(stop - buffer_.data()) + (end == nullptr ? 0 : 1);
      if (line.offset == 0 && line.text.starts_with("\xef\xbb\xbf")) line.text.remove_prefix(3);
      if (std::memchr(line.text.data(), '\0', line.text.size()) != nullptr) refuse_zero_byte();
      return true;
    }
  }
  // Behind the last line.
  std::uint64_t offset() const { return base_ + begin_; }

 private:
  void read_more();
  [[noreturn]] void refuse_zero_byte() const;

  int fd_;
  std::filesystem::path file_;
  std::uint64_t to_;
  bool regular_ = true;
  std::string buffer_;
  std::uint64_t base_;        // offset of the buffer in the file
  std::size_t begin_ = 0;     // begin of the next line in the buffer
  std::size_t searched_ = 0;  // no line ends between begin_ and here
  std::size_t end_ = 0;       // end of the bytes that were read
  std::uint64_t number_ = 0;
  bool at_end_ = false;
};

// How the cells of a line are separated: by commas or tabs (cells are taken as they are) or by blanks; none:
// the line is the cell.
enum class Separator : std::uint8_t { comma, blanks, tab, none };
std::vector<std::string_view> split(std::string_view row, Separator separator);
std::size_t width_of(std::string_view row, Separator separator);

// Removes comment and line end of a line; empty for a line that holds no row. The rules are those of
// numpy.loadtxt:
// "#" starts a comment, lines without a cell are skipped.
std::string_view without_comment(std::string_view line);

// The row of a line of such a table; empty if there is none. In tables with tabs, and where the line is the
// cell,
// "#" is an ordinary character.
inline std::string_view row_of(std::string_view line, Separator separator) {
  const bool verbatim = separator == Separator::tab || separator == Separator::none;
  return verbatim ? line : without_comment(line);
}

// RFC 4180 with a header line: a field in double quotes may hold commas, line ends, and quotes written twice.
// Other fields lose the blanks around them, and empty lines are skipped.
class Reader {
 public:
  // Throws Error{data} with the line where the file is not a table.
  explicit Reader(const std::filesystem::path& file);

  const std::vector<std::string>& header() const { return header_; }
  std::optional<std::size_t> column(std::string_view name) const;
  // The next row, as long as the header; false at the end.
  bool next(std::vector<std::string>& fields);
  // Throws Error{data} that names the file and the line where the last row begins.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  bool next_record(std::vector<std::string>& fields);

  std::filesystem::path file_;
  FileDescriptor fd_;
  LineReader lines_;
  std::uint64_t line_ = 0;
  std::vector<std::string> header_;
};

// A cell as Reader reads it: in quotes only if necessary.
std::string cell(std::string_view text);

}  // namespace wflow::csv
