// SPDX-License-Identifier: Apache-2.0
#include "base/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow {

namespace {

constexpr std::int64_t kMostItem = 1'000'000;  // bytes, or letters, of one value
constexpr std::string_view kMagic = "\x93NUMPY";

// Reads the header's text, a Python dict of three known keys.
class DictReader {
 public:
  // `offset`: the position of the text in the file.
  DictReader(std::string_view text, std::size_t offset, const std::string& name)
      : text_(text), offset_(offset), name_(name) {}

  [[noreturn]] void fail(const std::string& what) const {
    refuse_npy(name_, fmt::format("{} (byte {})", what, offset_ + at_));
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
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // a long integer of Python 2
    return static_cast<std::size_t>(*value);
  }

  std::string_view text_;
  std::size_t offset_;
  const std::string& name_;
  std::size_t at_ = 0;
};

void read_descr(DictReader& reader, NpyHeader& header) {
  header.descr = reader.string();
  const std::string_view descr = header.descr;
  if (descr.empty() || std::string_view("<>=|").find(descr[0]) == std::string_view::npos)
    reader.fail("its byte order is not known");
  header.big_endian = descr[0] == '>';
  if (descr.size() < 3) return;
  header.kind = descr[1];
  const auto size = text::to_integer(descr.substr(2));
  if (!size || *size <= 0 || *size > kMostItem) return;
  constexpr std::size_t kUtf32 = 4;
  header.item_bytes = static_cast<std::size_t>(*size) * (header.kind == 'U' ? kUtf32 : 1);
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
      read_descr(reader, header);
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

void refuse_npy(const std::string& name, const std::string& why) {
  throw Error(ExitCode::data, fmt::format("{} is not a usable .npy file: {}", name, why));
}

NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  const auto refuse = [&](const std::string& why, std::size_t at) {
    refuse_npy(name, fmt::format("{} (byte {})", why, at));
  };
  if (!text.starts_with(kMagic)) refuse("it does not begin as one", 0);
  if (start.size() < 10) refuse("it is cut short", start.size());
  const unsigned version = start[6];
  if (version < 1 || version > 3) refuse(fmt::format("it is of version {}; 1 to 3 are read", version), 6);
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  if (start.size() < begin) refuse("it is cut short", start.size());
  const std::size_t length = little_endian(start.subspan(8, length_bytes));
  if (length > kMostNpyHeader - begin) refuse("its header is longer than 1 MiB", 8);
  if (length > start.size() - begin) refuse("it is cut short", start.size());
  NpyHeader header;
  DictReader reader(text.substr(begin, length), begin, name);
  read_dict(reader, header);
  header.data_offset = begin + length;
  return header;
}

NpyHeader read_npy_header(int fd, const std::filesystem::path& file) {
  // Nearly every header has 128 bytes: read few bytes, and more only for a long header.
  constexpr std::size_t kUsual = 4096;
  std::vector<std::uint8_t> start(kUsual);
  start.resize(read_at(fd, 0, start.data(), start.size(), file));
  const bool long_length = start.size() >= 12 && start[6] > 1;
  const std::size_t length =
      start.size() < 12 ? 0 : little_endian(std::span(start).subspan(8, long_length ? 4 : 2));
  if (start.size() == kUsual && length > kUsual - 12) {
    start.resize(std::min(length + 12, kMostNpyHeader));
    start.resize(read_at(fd, 0, start.data(), start.size(), file));
  }
  return parse_npy_header(start, file.string());
}

std::optional<std::uint64_t> npy_bytes(const NpyHeader& header) {
  std::uint64_t bytes = header.item_bytes;
  for (const std::size_t length : header.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(length), &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace wflow
