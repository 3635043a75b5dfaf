// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files, format versions 1 to 3, one or two axes; cells are read where they lie.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "specs/samples/tables.h"
#include "specs/study/dialect.h"

namespace wflow::specs {

namespace {

constexpr std::int64_t kMaxLength = std::int64_t{1} << 48;

static_assert(std::endian::native == std::endian::little);

class NpyTable : public SampleTable {
 public:
  explicit NpyTable(const SampleDesign& design) : file_(design.file), fd_(open_file(design.file, O_RDONLY)) {
    read_header();
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) throw system_error(errno, "cannot read " + file_.string());
    const auto bytes = static_cast<std::uint64_t>(status.st_size) - data_offset_;
    if (rows_ == 0 || width_ == 0)
      throw Error(ExitCode::data, fmt::format("{} holds no sample", file_.string()));
    if (rows_ > bytes / item_bytes_ / width_) {
      throw Error(ExitCode::data,
                  fmt::format("{} is cut: its header says {} x {} values of {} bytes, {} bytes are there",
                              file_.string(), rows_, width_, item_bytes_, bytes));
    }
    names_ = column_names(design, width_);
  }

  std::uint64_t count() const override { return rows_; }
  const std::vector<std::string>& columns() const override { return names_; }

  std::string text(std::uint64_t row, std::size_t column) const override {
    if (row >= rows_ || column >= width_) {
      throw Error(ExitCode::data, fmt::format("{} has no row {} and column {}", file_.string(), row, column));
    }
    const std::uint64_t index = column_major_ ? column * rows_ + row : row * width_ + column;
    std::string item(item_bytes_, '\0');
    read_at(data_offset_ + index * item_bytes_, item);
    if (swapped_) std::reverse(item.begin(), item.end());
    return value_text(item);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ExitCode::data, fmt::format("{}: {}", file_.string(), why));
  }

  void read_at(std::uint64_t offset, std::string& into) const {
    std::size_t have = 0;
    while (have < into.size()) {
      const ssize_t got =
          ::pread(fd_.get(), into.data() + have, into.size() - have, static_cast<off_t>(offset + have));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw system_error(errno, fmt::format("cannot read {}", file_.string()));
      if (got == 0) refuse("this is not a whole .npy file");
      have += static_cast<std::size_t>(got);
    }
  }

  void read_header() {
    std::string start(10, '\0');
    read_at(0, start);
    if (!start.starts_with("\x93NUMPY")) refuse("this is no .npy file (its first bytes are not NumPy's)");
    std::uint32_t length = static_cast<unsigned char>(start[8]) | (static_cast<unsigned char>(start[9]) << 8);
    data_offset_ = 10;
    if (start[6] > 1) {
      std::string more(2, '\0');
      read_at(10, more);
      length |= static_cast<std::uint32_t>(static_cast<unsigned char>(more[0])) << 16 |
                static_cast<std::uint32_t>(static_cast<unsigned char>(more[1])) << 24;
      data_offset_ = 12;
    }
    if (length > (1U << 20)) refuse("its header is longer than 1 MiB");
    std::string header(length, '\0');
    read_at(data_offset_, header);
    data_offset_ += length;
    const std::string type = behind(header, "'descr':", '\'', '\'');
    const std::string shape = behind(header, "'shape':", '(', ')');
    if (type.size() < 3) refuse("a table of plain numbers was expected");
    letter_ = type[1];
    const auto size = text::to_integer(std::string_view(type).substr(2)).value_or(0);
    swapped_ = type[0] == '>';
    column_major_ = header.find("'fortran_order': True") != std::string::npos;
    const bool number =
        (letter_ == 'f' && (size == 4 || size == 8)) ||
        ((letter_ == 'i' || letter_ == 'u') && (size == 1 || size == 2 || size == 4 || size == 8));
    const bool word = (letter_ == 'U' || letter_ == 'S') && size > 0 && size < 100000 && !swapped_;
    if (!number && !word)
      refuse(fmt::format("values of type {}{} are not known; write f4, f8, i4 or i8", letter_, size));
    item_bytes_ = static_cast<std::uint64_t>(size) * (letter_ == 'U' ? 4 : 1);
    read_shape(shape);
  }

  void read_shape(const std::string& shape) {
    std::vector<std::uint64_t> lengths;
    for (const std::string& part : text::split(shape, ',')) {
      if (text::trim(part).empty()) continue;  // "(5,)"
      const auto length = text::to_integer(text::trim(part));
      if (!length || *length < 0 || *length > kMaxLength) refuse("its shape does not read: (" + shape + ")");
      lengths.push_back(static_cast<std::uint64_t>(*length));
    }
    if (lengths.empty() || lengths.size() > 2) refuse("an array with one or two axes was expected");
    rows_ = lengths[0];
    width_ = lengths.size() == 2 ? lengths[1] : 1;
  }

  // What stands between the next `open` and `close` behind `key`.
  static std::string behind(const std::string& header, std::string_view key, char open, char close) {
    const std::size_t at = header.find(key);
    const std::size_t begin = at == std::string::npos ? at : header.find(open, at + key.size());
    const std::size_t end = begin == std::string::npos ? begin : header.find(close, begin + 1);
    return end == std::string::npos ? std::string() : header.substr(begin + 1, end - begin - 1);
  }

  template <typename T>
  static T as(const std::string& item) {
    T value{};
    std::memcpy(&value, item.data(), sizeof value);
    return value;
  }

  std::string value_text(const std::string& item) const {
    switch (letter_) {
      case 'f':
        return item_bytes_ == 4 ? python_text(as<float>(item)) : python_text(as<double>(item));
      case 'i':
        if (item_bytes_ == 1) return std::to_string(as<std::int8_t>(item));
        if (item_bytes_ == 2) return std::to_string(as<std::int16_t>(item));
        return std::to_string(item_bytes_ == 4 ? as<std::int32_t>(item) : as<std::int64_t>(item));
      case 'u':
        if (item_bytes_ == 1) return std::to_string(as<std::uint8_t>(item));
        if (item_bytes_ == 2) return std::to_string(as<std::uint16_t>(item));
        return std::to_string(item_bytes_ == 4 ? as<std::uint32_t>(item) : as<std::uint64_t>(item));
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
  std::vector<std::string> names_;
  std::uint64_t data_offset_ = 0;
  std::uint64_t item_bytes_ = 0;
  std::uint64_t rows_ = 0;
  std::size_t width_ = 0;
  char letter_ = 'f';
  bool swapped_ = false;
  bool column_major_ = false;
};

}  // namespace

std::unique_ptr<const SampleTable> npy_table(const SampleDesign& design) {
  return std::make_unique<NpyTable>(design);
}

}  // namespace wflow::specs
