// SPDX-License-Identifier: Apache-2.0
// .csv, .tsv, .tab and .lines files: read once to count and check the rows, then by range. Only the place of
// every 1024th row is stored, so that a table of 10^8 rows costs a megabyte.
#include <fcntl.h>
#include <fmt/format.h>

#include <mutex>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "specs/samples/samples.h"

namespace wflow::specs {

namespace {

constexpr std::uint64_t kRowsPerBlock = 1024;

csv::Separator separator_of(const std::filesystem::path& file) {
  const std::string suffix = text::lower(file.extension().string());
  if (suffix == ".csv") return csv::Separator::comma;
  if (suffix == ".tsv") return csv::Separator::tab;
  return suffix == ".lines" ? csv::Separator::none : csv::Separator::blanks;
}

class TextTable : public SampleTable {
 public:
  explicit TextTable(const SampleDesign& design)
      : file_(design.file), separator_(separator_of(design.file)), fd_(open_file(design.file, O_RDONLY)) {
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
    const std::vector<std::string_view> cells = csv::split(cached_rows_[row % kRowsPerBlock], separator_);
    if (column >= cells.size()) throw changed();
    return std::string(cells[column]);
  }

 private:
  Error changed() const {
    return Error(ExitCode::data, fmt::format("{} has changed while it was in use", file_.string()));
  }

  void scan(bool header) {
    csv::LineReader lines(fd_.get(), file_);
    csv::Line line;
    while (lines.next(line)) use(line, header);
    end_ = lines.offset();
  }

  void use(const csv::Line& line, bool header) {
    const std::string_view row = csv::row_of(line.text, separator_);
    if (row.empty()) return;
    const std::size_t width = csv::width_of(row, separator_);
    if (width_ == 0) {
      width_ = width;
      first_line_ = line.number;
      if (header) {
        for (const std::string_view name : csv::split(row, separator_)) names_.emplace_back(text::trim(name));
        return;
      }
    }
    if (width != width_) {
      throw Error(ExitCode::data,
                  fmt::format("{}:{}: this row has {} value{}, line {} has {}", file_.string(), line.number,
                              width, width == 1 ? "" : "s", first_line_, width_));
    }
    if (count_ % kRowsPerBlock == 0) blocks_.push_back(line.offset);
    ++count_;
  }

  void load(std::uint64_t block) const {
    const std::uint64_t from = blocks_[block];
    const std::uint64_t to = block + 1 < blocks_.size() ? blocks_[block + 1] : end_;
    csv::LineReader lines(fd_.get(), file_, from, to);
    csv::Line line;
    cached_rows_.clear();
    while (lines.next(line)) {
      const std::string_view row = csv::row_of(line.text, separator_);
      if (!row.empty()) cached_rows_.emplace_back(row);
    }
    if (lines.offset() != to) {
      cached_rows_.clear();
      throw changed();
    }
    cached_block_ = block;
  }

  std::filesystem::path file_;
  csv::Separator separator_;
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
