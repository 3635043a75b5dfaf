// SPDX-License-Identifier: Apache-2.0
#include "converters/readers/netcdf_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace wflow::converters {

namespace {

constexpr std::uint32_t kDimensions = 10;
constexpr std::uint32_t kVariables = 11;
constexpr std::uint32_t kAttributes = 12;
constexpr std::array<std::uint64_t, 12> kTypeBytes = {0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};  // of nc_type

class HeaderWalk {
 public:
  HeaderWalk(const InputFile& file, int version) : file_(file), version_(version) {}

  void run() {
    word(wide());  // the number of records, or "streaming"
    list(kDimensions, [&] {
      name();
      word(wide());
    });
    attributes();
    list(kVariables, [&] { variable(); });
  }

 private:
  bool wide() const { return version_ == 5; }

  [[noreturn]] void fail(std::uint64_t at, const char* what) const {
    throw Error(ExitCode::data, fmt::format("{} is not a readable NetCDF file: its header has {} at byte {}",
                                            file_.path().string(), what, at));
  }

  // Big-endian, of 8 bytes or 4.
  std::uint64_t word(bool eight) {
    const std::size_t bytes = eight ? 8 : 4;
    if (file_.size() - at_ < bytes) fail(at_, "its end");
    if (at_ < start_ || at_ + bytes > start_ + buffer_.size()) {
      start_ = at_;
      buffer_ =
          file_.read(at_, static_cast<std::size_t>(std::min<std::uint64_t>(kBuffer, file_.size() - at_)));
    }
    std::uint64_t value = 0;
    for (std::size_t k = 0; k < bytes; ++k)
      value = value << 8 | buffer_[static_cast<std::size_t>(at_ - start_) + k];
    at_ += bytes;
    return value;
  }

  // Values of `width` bytes, filled up to a multiple of four.
  void skip(std::uint64_t count, std::uint64_t width) {
    const std::uint64_t left = file_.size() - at_;
    if (count > left || count * width > left) fail(at_, "a length beyond the end of the file");
    at_ += std::min((count * width + 3) / 4 * 4, left);
  }

  void name() { skip(word(wide()), 1); }

  template <typename Element>
  void list(std::uint32_t tag, Element element) {
    const std::uint64_t place = at_;
    const std::uint64_t found = word(false);
    const std::uint64_t count = word(wide());
    if (found == 0 && count == 0) return;  // absent
    if (found != tag) fail(place, "an unknown list");
    if (count > (file_.size() - at_) / 8) fail(place, "a list with more entries than the file can hold");
    for (std::uint64_t k = 0; k < count; ++k) element();
  }

  void attributes() {
    list(kAttributes, [&] {
      name();
      const std::uint64_t place = at_;
      const std::uint64_t type = word(false);
      if (type == 0 || type >= kTypeBytes.size()) fail(place, "an unknown type");
      skip(word(wide()), kTypeBytes[type]);
    });
  }

  void variable() {
    name();
    skip(word(wide()), wide() ? 8 : 4);  // numbers of its dimensions
    attributes();
    word(false);          // type
    word(wide());         // bytes
    word(version_ != 1);  // where it begins
  }

  static constexpr std::size_t kBuffer = 64 << 10;
  const InputFile& file_;
  int version_;
  std::uint64_t at_ = 4;
  std::uint64_t start_ = 0;  // of what is in the buffer
  std::vector<std::uint8_t> buffer_;
};

}  // namespace

void check_classic_header(const InputFile& file) {
  if (file.size() < 4) return;
  const std::vector<std::uint8_t> magic = file.read(0, 4);
  const bool classic = std::equal(magic.begin(), magic.begin() + 3, std::string_view("CDF").begin());
  if (classic && (magic[3] == 1 || magic[3] == 2 || magic[3] == 5)) HeaderWalk(file, magic[3]).run();
}

}  // namespace wflow::converters
