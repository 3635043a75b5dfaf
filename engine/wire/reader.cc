// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/reader.h"

#include <bit>
#include <limits>

namespace wflow::engine::wire {

namespace {

// First bytes of MessagePack values (https://github.com/msgpack/msgpack/blob/master/spec.md).
constexpr std::uint8_t kFalse = 0xc2;
constexpr std::uint8_t kTrue = 0xc3;
constexpr std::uint8_t kBin8 = 0xc4;
constexpr std::uint8_t kBin32 = 0xc6;
constexpr std::uint8_t kFloat64 = 0xcb;
constexpr std::uint8_t kUint8 = 0xcc;
constexpr std::uint8_t kUint64 = 0xcf;
constexpr std::uint8_t kInt8 = 0xd0;
constexpr std::uint8_t kInt64 = 0xd3;
constexpr std::uint8_t kStr8 = 0xd9;
constexpr std::uint8_t kStr32 = 0xdb;
constexpr std::uint8_t kArray16 = 0xdc;
constexpr std::uint8_t kArray32 = 0xdd;

}  // namespace

bool Reader::fail() {
  failed_ = true;
  return false;
}

bool Reader::byte(std::uint8_t& value) {
  if (failed_ || rest_.empty()) return fail();
  value = static_cast<std::uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return true;
}

bool Reader::big_endian(std::size_t bytes, std::uint64_t& value) {
  if (failed_ || rest_.size() < bytes) return fail();
  value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint8_t>(rest_[i]);
  rest_.remove_prefix(bytes);
  return true;
}

bool Reader::integer(std::uint64_t& value, bool& negative) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  negative = false;
  if (first < 0x80) {
    value = first;
    return true;
  }
  if (first >= 0xe0) {
    value = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(first)));
    negative = true;
    return true;
  }
  if (first >= kUint8 && first <= kUint64) return big_endian(std::size_t{1} << (first - kUint8), value);
  if (first < kInt8 || first > kInt64) return fail();
  const std::size_t bytes = std::size_t{1} << (first - kInt8);
  if (!big_endian(bytes, value)) return false;
  const unsigned shift = static_cast<unsigned>(64 - 8 * bytes);
  const auto extended = static_cast<std::int64_t>(value << shift) >> shift;
  value = static_cast<std::uint64_t>(extended);
  negative = extended < 0;
  return true;
}

bool Reader::unsigned_integer(std::uint64_t& value) {
  bool negative = false;
  if (!integer(value, negative)) return false;
  return negative ? fail() : true;
}

bool Reader::signed_integer(std::int64_t& value) {
  std::uint64_t bits = 0;
  bool negative = false;
  if (!integer(bits, negative)) return false;
  if (!negative && bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return fail();
  value = static_cast<std::int64_t>(bits);
  return true;
}

bool Reader::boolean(bool& value) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  if (first != kFalse && first != kTrue) return fail();
  value = first == kTrue;
  return true;
}

bool Reader::real(double& value) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  if (first != kFloat64) return fail();
  std::uint64_t bits = 0;
  if (!big_endian(8, bits)) return false;
  value = std::bit_cast<double>(bits);
  return true;
}

bool Reader::text(std::string_view& value) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  std::uint64_t length = 0;
  if (first >= 0xa0 && first <= 0xbf) {
    length = first & 0x1fU;
  } else if (first >= kStr8 && first <= kStr32) {
    if (!big_endian(std::size_t{1} << (first - kStr8), length)) return false;
  } else if (first >= kBin8 && first <= kBin32) {
    if (!big_endian(std::size_t{1} << (first - kBin8), length)) return false;
  } else {
    return fail();
  }
  if (length > rest_.size()) return fail();
  value = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return true;
}

bool Reader::array(std::uint64_t& count, std::size_t element_bytes) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  if (first >= 0x90 && first <= 0x9f) {
    count = first & 0x0fU;
  } else if (first == kArray16 || first == kArray32) {
    if (!big_endian(first == kArray16 ? 2 : 4, count)) return false;
  } else {
    return fail();
  }
  return count > rest_.size() / element_bytes ? fail() : true;
}

}  // namespace wflow::engine::wire
