// SPDX-License-Identifier: Apache-2.0
#include "base/csv.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace wflow::csv {

namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

char letter_of(Separator separator) {
  return separator == Separator::tab ? '\t' : ',';
}

// The fields of a record that may go on in the next line.
class Record {
 public:
  explicit Record(std::vector<std::string>& fields) : fields_(fields) { fields_.assign(1, {}); }

  bool is_open() const { return in_quotes_; }

  void add(std::string_view line) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (in_quotes_ && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
        fields_.back() += '"';
        ++i;
      } else if (c == '"' && (in_quotes_ || text::trim(fields_.back()).empty())) {
        if (!in_quotes_) fields_.back().clear();
        in_quotes_ = !in_quotes_;
        was_quoted_ = true;
      } else if (c == ',' && !in_quotes_) {
        end_field();
        fields_.emplace_back();
      } else {
        fields_.back() += c;
      }
    }
    if (in_quotes_) {
      fields_.back() += '\n';
      bytes_ += line.size();
    } else {
      // Blanks behind the closing quote and the carriage return of a line end are not part of the field.
      if (was_quoted_) fields_.back().resize(fields_.back().size() - trailing_blanks(line));
      end_field();
    }
  }

  bool is_too_long() const { return bytes_ > kMaxLineBytes; }

 private:
  static std::size_t trailing_blanks(std::string_view line) {
    std::size_t end = line.size();
    while (end > 0 && is_blank(line[end - 1])) --end;
    return line.size() - end;
  }

  void end_field() {
    if (!was_quoted_) fields_.back() = text::trim(fields_.back());
    was_quoted_ = false;
  }

  std::vector<std::string>& fields_;
  bool in_quotes_ = false;
  bool was_quoted_ = false;
  std::size_t bytes_ = 0;
};

}  // namespace

LineReader::LineReader(int fd, std::filesystem::path file, std::uint64_t from, std::uint64_t to)
    : fd_(fd), file_(std::move(file)), to_(to), base_(from) {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) throw system_error(errno, fmt::format("cannot read {}", file_.string()));
  if (S_ISDIR(status.st_mode))
    throw Error(ExitCode::data, fmt::format("{} is a directory, a file was expected", file_.string()));
  regular_ = S_ISREG(status.st_mode);
}

void LineReader::read_more() {
  if (end_ - begin_ > kMaxLineBytes) {
    throw Error(ExitCode::data, fmt::format("{}:{}: this line is longer than 64 MiB; is it a table?",
                                            file_.string(), number_ + 1));
  }
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  base_ += begin_;
  end_ -= begin_;
  searched_ -= begin_;
  begin_ = 0;
  const std::uint64_t left = to_ - (base_ + end_);
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(kReadBytes, left));
  if (buffer_.size() < end_ + wanted) buffer_.resize(end_ + wanted);
  std::size_t have = 0;
  while (have < wanted) {
    char* into = buffer_.data() + end_;
    const ssize_t got = regular_ ? ::pread(fd_, into, wanted - have, static_cast<off_t>(base_ + end_))
                                 : ::read(fd_, into, wanted - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(errno, fmt::format("cannot read {}", file_.string()));
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
    end_ += static_cast<std::size_t>(got);
  }
  at_end_ = have < kReadBytes;
}

void LineReader::refuse_zero_byte() const {
  throw Error(ExitCode::data,
              fmt::format("{}:{}: this is no text file (a zero byte)", file_.string(), number_));
}

std::vector<std::string_view> split(std::string_view row, Separator separator) {
  std::vector<std::string_view> found;
  if (separator == Separator::none) return {row};
  if (separator != Separator::blanks) {
    for (;;) {
      const std::size_t at = row.find(letter_of(separator));
      found.push_back(row.substr(0, at));
      if (at == std::string_view::npos) return found;
      row.remove_prefix(at + 1);
    }
  }
  while (!row.empty()) {
    while (!row.empty() && is_blank(row.front())) row.remove_prefix(1);
    std::size_t end = 0;
    while (end < row.size() && !is_blank(row[end])) ++end;
    if (end > 0) found.push_back(row.substr(0, end));
    row.remove_prefix(end);
  }
  return found;
}

std::size_t width_of(std::string_view row, Separator separator) {
  if (separator == Separator::none) return 1;
  if (separator == Separator::blanks) return split(row, separator).size();
  return 1 + static_cast<std::size_t>(std::count(row.begin(), row.end(), letter_of(separator)));
}

std::string_view without_comment(std::string_view line) {
  line = line.substr(0, line.find('#'));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return std::all_of(line.begin(), line.end(), is_blank) ? std::string_view{} : line;
}

Reader::Reader(const std::filesystem::path& file)
    : file_(file), fd_(open_file(file, O_RDONLY)), lines_(fd_.get(), file) {
  if (!next_record(header_))
    throw Error(ExitCode::data, fmt::format("{} is empty; a header line was expected", file_.string()));
  std::vector<std::string> sorted = header_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) fail(fmt::format("two columns are named '{}'", *twice));
}

std::optional<std::size_t> Reader::column(std::string_view name) const {
  const auto at = std::find(header_.begin(), header_.end(), name);
  if (at == header_.end()) return std::nullopt;
  return static_cast<std::size_t>(at - header_.begin());
}

bool Reader::next(std::vector<std::string>& fields) {
  if (!next_record(fields)) return false;
  if (fields.size() != header_.size())
    fail(fmt::format("this row has {} fields, the header has {}", fields.size(), header_.size()));
  return true;
}

void Reader::fail(const std::string& what) const {
  throw Error(ExitCode::data, fmt::format("{}:{}: {}", file_.string(), line_, what));
}

bool Reader::next_record(std::vector<std::string>& fields) {
  Line line;
  do {
    if (!lines_.next(line)) return false;
  } while (text::trim(line.text).empty());
  line_ = line.number;
  Record record(fields);
  for (;;) {
    record.add(line.text);
    if (!record.is_open()) return true;
    if (record.is_too_long() || !lines_.next(line)) fail("a quote does not end");
  }
}

std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace wflow::csv
