// SPDX-License-Identifier: Apache-2.0
// .csv and .tab files: read once to count and check the rows, then by range. Only the place of every 1024th
// row is kept, so that a table of 10^8 rows costs a megabyte.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "specs/samples/tables.h"

namespace wflow::specs {

namespace {

constexpr std::uint64_t kRowsPerBlock = 1024;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;
// A line longer than this is no table row but some other file.
constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;

std::string read_range(int fd, std::uint64_t from, std::size_t length, const std::filesystem::path& file) {
  std::string bytes(length, '\0');
  std::size_t have = 0;
  while (have < length) {
    const ssize_t got = ::pread(fd, bytes.data() + have, length - have, static_cast<off_t>(from + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(errno, fmt::format("cannot read {}", file.string()));
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

// What is left of a line without comment and line end; empty for a line that holds no row. The rules are
// numpy.loadtxt's, which Merlin reads with: "#" starts a comment, lines without a cell are skipped.
std::string_view row_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return std::all_of(line.begin(), line.end(), is_blank) ? std::string_view{} : line;
}

class TextTable : public SampleTable {
 public:
  explicit TextTable(const SampleDesign& design)
      : file_(design.file),
        comma_(text::lower(design.file.extension().string()) == ".csv"),
        fd_(open_file(design.file, O_RDONLY)) {
    scan(design.header);
    if (count_ == 0) throw Error(ExitCode::data, fmt::format("{} holds no sample", file_.string()));
    if (!design.header) names_ = column_names(design, width_);
  }

  std::uint64_t count() const override { return count_; }
  const std::vector<std::string>& columns() const override { return names_; }

  std::string text(std::uint64_t row, std::size_t column) const override {
    const std::lock_guard lock(mutex_);
    const std::uint64_t block = row / kRowsPerBlock;
    if (row >= count_ || column >= width_) {
      throw Error(ExitCode::data, fmt::format("{} has no row {} and column {}", file_.string(), row, column));
    }
    if (cached_rows_.empty() || block != cached_block_) load(block);
    if (row % kRowsPerBlock >= cached_rows_.size()) throw changed();
    std::vector<std::string_view> row_cells = cells(cached_rows_[row % kRowsPerBlock]);
    if (column >= row_cells.size()) throw changed();
    return std::string(row_cells[column]);
  }

 private:
  Error changed() const {
    return Error(ExitCode::data, fmt::format("{} has changed while it was in use", file_.string()));
  }

  std::vector<std::string_view> cells(std::string_view row) const {
    std::vector<std::string_view> found;
    if (comma_) {
      for (;;) {
        const std::size_t at = row.find(',');
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

  std::size_t width_of(std::string_view row) const {
    return comma_ ? 1 + static_cast<std::size_t>(std::count(row.begin(), row.end(), ',')) : cells(row).size();
  }

  // Calls use(row, offset of its line, number of its line) for every row of the file.
  void scan(bool header) {
    std::string buffer;  // from `base` on: what has been read and not used
    std::uint64_t base = 0;
    std::uint64_t line_number = 0;
    bool at_end = false;
    while (!at_end) {
      std::string more = read_range(fd_.get(), base + buffer.size(), kReadBytes, file_);
      at_end = more.size() < kReadBytes;
      buffer += more;
      std::size_t start = 0;
      for (;;) {
        const char* found =
            static_cast<const char*>(std::memchr(buffer.data() + start, '\n', buffer.size() - start));
        if (found == nullptr && (!at_end || start == buffer.size())) break;
        const std::size_t end =
            found == nullptr ? buffer.size() : static_cast<std::size_t>(found - buffer.data());
        std::string_view line(buffer.data() + start, end - start);
        if (base + start == 0 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
        use(line, base + start, ++line_number, header);
        start = std::min(end + 1, buffer.size());
      }
      buffer.erase(0, start);
      base += start;
      if (buffer.size() > kMaxLineBytes) {
        throw Error(ExitCode::data, fmt::format("{}:{}: this line is longer than 64 MiB; is it a table?",
                                                file_.string(), line_number + 1));
      }
    }
    end_ = base + buffer.size();
  }

  void use(std::string_view line, std::uint64_t offset, std::uint64_t number, bool header) {
    if (line.find('\0') != std::string_view::npos) {
      throw Error(ExitCode::data,
                  fmt::format("{}:{}: this is no text file (a zero byte)", file_.string(), number));
    }
    const std::string_view row = row_of(line);
    if (row.empty()) return;
    const std::size_t width = width_of(row);
    if (width_ == 0) {
      width_ = width;
      first_line_ = number;
      if (header) {
        for (const std::string_view name : cells(row)) names_.emplace_back(text::trim(name));
        return;
      }
    }
    if (width != width_) {
      throw Error(ExitCode::data,
                  fmt::format("{}:{}: this row has {} value{}, line {} has {}", file_.string(), number, width,
                              width == 1 ? "" : "s", first_line_, width_));
    }
    if (count_ % kRowsPerBlock == 0) blocks_.push_back(offset);
    ++count_;
  }

  void load(std::uint64_t block) const {
    const std::uint64_t from = blocks_[block];
    const std::uint64_t to = block + 1 < blocks_.size() ? blocks_[block + 1] : end_;
    const std::string bytes = read_range(fd_.get(), from, to - from, file_);
    if (bytes.size() != to - from) throw changed();
    cached_rows_.clear();
    std::string_view rest = bytes;
    if (from == 0 && rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      const std::string_view row = row_of(rest.substr(0, end));
      if (!row.empty()) cached_rows_.emplace_back(row);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    cached_block_ = block;
  }

  std::filesystem::path file_;
  bool comma_;
  FileDescriptor fd_;
  std::vector<std::string> names_;
  std::size_t width_ = 0;
  std::uint64_t first_line_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t end_ = 0;
  std::vector<std::uint64_t> blocks_;  // where every 1024th row begins
  mutable std::mutex mutex_;           // guards the cache
  mutable std::uint64_t cached_block_ = 0;
  mutable std::vector<std::string> cached_rows_;
};

}  // namespace

std::unique_ptr<const SampleTable> text_table(const SampleDesign& design) {
  return std::make_unique<TextTable>(design);
}

}  // namespace wflow::specs
