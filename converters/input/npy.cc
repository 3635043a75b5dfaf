// SPDX-License-Identifier: Apache-2.0
#include "converters/input/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "converters/input/input.h"

namespace wflow::converters {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// The header's text is a Python dict of three known keys, and this is a reader of just that.
class DictReader {
 public:
  DictReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::data, fmt::format("{} is not a usable .npy file: {}", name_, what));
  }
  bool accept(char wanted) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("'{}' was expected in its header", wanted));
  }
  std::string string() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      fail("its values are records, not numbers");
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail("a text in its header does not end");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return word == "True";
    }
    fail("True or False was expected in its header");
  }
  std::vector<std::size_t> tuple() {
    expect('(');
    std::vector<std::size_t> values;
    while (!accept(')')) {
      if (values.size() >= 32) fail("it has too many axes");
      values.push_back(number());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  std::size_t number() {
    skip_space();
    const std::size_t start = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) ++at_;
    const auto value = text::to_integer(text_.substr(start, at_ - start));
    if (!value) fail("a length in its shape is not a number");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
    return static_cast<std::size_t>(*value);
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

void read_descr(const std::string& descr, const DictReader& reader, NpyHeader& header) {
  const std::string letters = "iuf";
  const bool known = descr.size() >= 3 && letters.find(descr[1]) != std::string::npos;
  const auto bytes = known ? text::to_integer(std::string_view(descr).substr(2)) : std::nullopt;
  const std::string_view kind = !known ? "" : descr[1] == 'i' ? "int" : descr[1] == 'u' ? "uint" : "float";
  const auto dtype =
      bytes && *bytes > 0 && *bytes <= 16 ? parse_dtype(fmt::format("{}{}", kind, *bytes * 8)) : std::nullopt;
  if (!dtype) {
    reader.fail(fmt::format(
        "its values are of type '{}'; integers of 1 to 8 bytes and floats of 4 or 8 are read", descr));
  }
  if (std::string_view("<>=|").find(descr[0]) == std::string_view::npos)
    reader.fail("its byte order is not known");
  header.dtype = *dtype;
  header.big_endian = descr[0] == '>';
}

void read_dict(DictReader& reader, NpyHeader& header) {
  bool descr = false;
  bool order = false;
  bool shape = false;
  reader.expect('{');
  while (!reader.accept('}')) {
    const std::string key = reader.string();
    reader.expect(':');
    if (key == "descr" && !descr) {
      read_descr(reader.string(), reader, header);
      descr = true;
    } else if (key == "fortran_order" && !order) {
      header.fortran_order = reader.boolean();
      order = true;
    } else if (key == "shape" && !shape) {
      header.shape = reader.tuple();
      shape = true;
    } else {
      reader.fail(fmt::format("its header has an unexpected key '{}'", key));
    }
    if (!reader.accept(',')) {
      reader.expect('}');
      break;
    }
  }
  if (!descr || !order || !shape) reader.fail("its header is not complete");
}

std::size_t little_endian(std::span<const std::uint8_t> bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  DictReader nothing({}, name);
  if (!text.starts_with(kMagic)) nothing.fail("it does not begin as one");
  if (start.size() < 10) nothing.fail("it is cut short");
  const unsigned version = start[6];
  if (version < 1 || version > 3) nothing.fail(fmt::format("it is of version {}; 1 to 3 are read", version));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  if (start.size() < begin) nothing.fail("it is cut short");
  const std::size_t length = little_endian(start.subspan(8, length_bytes));
  if (length > start.size() - begin) nothing.fail("it is cut short");
  NpyHeader header;
  DictReader reader(text.substr(begin, length), name);
  read_dict(reader, header);
  header.data_offset = begin + length;
  return header;
}

namespace {

NpyHeader read_header(const InputFile& file) {
  const std::size_t start_bytes =
      static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kMostNpyHeader));
  // Nearly every header is of 128 bytes: read little, and all of a long one only where it is needed.
  std::vector<std::uint8_t> start = file.read(0, std::min<std::size_t>(start_bytes, 4096));
  const bool longer =
      start.size() >= 12 && start[6] > 1 && little_endian(std::span(start).subspan(8, 4)) > start.size() - 12;
  const bool longer_v1 = start.size() >= 10 && start[6] == 1 &&
                         little_endian(std::span(start).subspan(8, 2)) > start.size() - 10;
  if (longer || longer_v1) start = file.read(0, start_bytes);
  return parse_npy_header(start, file.path().string());
}

}  // namespace

FileForm npy_form(const std::filesystem::path& path) {
  const NpyHeader header = read_header(InputFile(path));
  return {header.dtype, header.shape};
}

Array read_npy(const std::filesystem::path& path, const ConvertConfig&, Row row) {
  const InputFile file(path);
  const NpyHeader header = read_header(file);
  if (row && header.fortran_order) {
    throw Error(ExitCode::data,
                fmt::format("{} is in Fortran order; rows are read of files in C order", path.string()));
  }
  const std::vector<std::size_t> shape = row ? row_shape(path, header.shape, *row) : header.shape;
  const auto bytes = array_bytes(header.dtype, shape);
  if (!bytes)
    throw Error(ExitCode::data,
                fmt::format("{} holds more than 4 GiB, which no sample may have", path.string()));
  Array array{header.dtype, shape, file.read(header.data_offset + row.value_or(0) * *bytes, *bytes)};
  if (header.big_endian) swap_byte_order(array.bytes, dtype_size(array.dtype));
  if (header.fortran_order) to_c_order(array);
  return array;
}

}  // namespace wflow::converters
