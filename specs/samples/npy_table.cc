// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files, format versions 1 to 3, one or two axes; cells are read from the file on demand.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/npy.h"
#include "specs/samples/samples.h"
#include "specs/study/dialect.h"

namespace wflow::specs {

namespace {

static_assert(std::endian::native == std::endian::little);

class NpyTable : public SampleTable {
 public:
  explicit NpyTable(const SampleDesign& design)
      : file_(design.file),
        fd_(open_file(design.file, O_RDONLY)),
        header_(read_npy_header(fd_.get(), file_)) {
    check_type();
    const std::vector<std::size_t>& shape = header_.shape;
    if (shape.empty() || shape.size() > 2) refuse("an array with one or two axes was expected");
    rows_ = shape[0];
    width_ = shape.size() == 2 ? shape[1] : 1;
    if (rows_ == 0 || width_ == 0)
      throw Error(ExitCode::data, fmt::format("{} holds no sample", file_.string()));
    check_size();
    names_ = column_names(design, width_);
  }

  std::uint64_t count() const override { return rows_; }
  const std::vector<std::string>& columns() const override { return names_; }

  std::string text(std::uint64_t row, std::size_t column) const override {
    return value_text(item_at(row, column));
  }

  // A truth value is 1 or 0, as in NumPy.
  double number(std::uint64_t row, std::size_t column) const override {
    if (header_.kind == 'b') return item_at(row, column)[0] != 0 ? 1 : 0;
    return SampleTable::number(row, column);
  }

 private:
  std::string item_at(std::uint64_t row, std::size_t column) const {
    if (row >= rows_ || column >= width_) {
      throw Error(ExitCode::data, fmt::format("{} has no row {} and column {}", file_.string(), row, column));
    }
    const std::uint64_t index = header_.fortran_order ? column * rows_ + row : row * width_ + column;
    std::string item(header_.item_bytes, '\0');
    const std::uint64_t offset = header_.data_offset + index * header_.item_bytes;
    if (read_at(fd_.get(), offset, item.data(), item.size(), file_) < item.size())
      throw Error(ExitCode::data, fmt::format("{} has changed while it was in use", file_.string()));
    if (header_.big_endian) std::reverse(item.begin(), item.end());
    return item;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ExitCode::data, fmt::format("{}: {}", file_.string(), why));
  }

  void check_type() const {
    const std::size_t size = header_.item_bytes;
    const bool whole = header_.kind == 'i' || header_.kind == 'u';
    const bool number = (header_.kind == 'f' && (size == 4 || size == 8)) ||
                        (whole && (size == 1 || size == 2 || size == 4 || size == 8));
    const bool truth = header_.kind == 'b' && size == 1;
    const bool word = (header_.kind == 'U' || header_.kind == 'S') && size > 0 && !header_.big_endian;
    if (!number && !truth && !word) {
      refuse(fmt::format("values of type {} are not known; write f4, f8, i4 or i8",
                         header_.descr.substr(std::min<std::size_t>(1, header_.descr.size()))));
    }
  }

  void check_size() const {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) throw system_error(errno, "cannot read " + file_.string());
    const std::uint64_t bytes = static_cast<std::uint64_t>(status.st_size) - header_.data_offset;
    const auto needed = npy_bytes(header_);
    if (needed && *needed <= bytes) return;
    throw Error(ExitCode::data,
                fmt::format("{} is cut: its header says {} x {} values of {} bytes, {} bytes are there",
                            file_.string(), rows_, width_, header_.item_bytes, bytes));
  }

  template <typename T>
  static T as(const std::string& item) {
    T value{};
    std::memcpy(&value, item.data(), sizeof value);
    return value;
  }

  std::string value_text(const std::string& item) const {
    switch (header_.kind) {
      case 'f':
        return header_.item_bytes == 4 ? python_text(as<float>(item)) : python_text(as<double>(item));
      case 'i':
        if (header_.item_bytes == 1) return std::to_string(as<std::int8_t>(item));
        if (header_.item_bytes == 2) return std::to_string(as<std::int16_t>(item));
        return std::to_string(header_.item_bytes == 4 ? as<std::int32_t>(item) : as<std::int64_t>(item));
      case 'u':
        if (header_.item_bytes == 1) return std::to_string(as<std::uint8_t>(item));
        if (header_.item_bytes == 2) return std::to_string(as<std::uint16_t>(item));
        return std::to_string(header_.item_bytes == 4 ? as<std::uint32_t>(item) : as<std::uint64_t>(item));
      case 'b':
        return item[0] != 0 ? "True" : "False";
      case 'U':
        return utf8(item);
      default:
        return item.substr(0, item.find('\0'));
    }
  }

  static std::string utf8(const std::string& item) {
    std::string result;
    for (std::size_t at = 0; at + 4 <= item.size(); at += 4) {
      const auto code = as<std::uint32_t>(item.substr(at, 4));
      if (code == 0) break;
      if (code < 0x80) {
        result += static_cast<char>(code);
      } else if (code < 0x800) {
        result += {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
      } else if (code < 0x10000) {
        result += {static_cast<char>(0xe0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3f)),
                   static_cast<char>(0x80 | (code & 0x3f))};
      } else {
        result +=
            {static_cast<char>(0xf0 | ((code >> 18) & 7)), static_cast<char>(0x80 | ((code >> 12) & 0x3f)),
             static_cast<char>(0x80 | ((code >> 6) & 0x3f)), static_cast<char>(0x80 | (code & 0x3f))};
      }
    }
    return result;
  }

  std::filesystem::path file_;
  FileDescriptor fd_;
  NpyHeader header_;
  std::vector<std::string> names_;
  std::uint64_t rows_ = 0;
  std::size_t width_ = 0;
};

}  // namespace

std::unique_ptr<const SampleTable> npy_table(const SampleDesign& design) {
  return std::make_unique<NpyTable>(design);
}

}  // namespace wflow::specs
