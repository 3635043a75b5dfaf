// SPDX-License-Identifier: Apache-2.0
// Whole numbers in as few bytes as they need: seven bits a byte, lowest first, the highest bit set on all but the
// last (LEB128); signed ones folded so that small ones of either sign stay short (zigzag).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wflow::engine {

inline void put_varint(std::string& bytes, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) bytes.push_back(static_cast<char>(value | 0x80U));
  bytes.push_back(static_cast<char>(value));
}

// Takes it from the front; false where the bytes end before it does.
inline bool get_varint(std::string_view& bytes, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80U) return true;
  }
  return false;
}

inline void put_signed(std::string& bytes, std::int64_t value) {
  put_varint(bytes, (static_cast<std::uint64_t>(value) << 1U) ^ static_cast<std::uint64_t>(value >> 63));
}

inline bool get_signed(std::string_view& bytes, std::int64_t& value) {
  std::uint64_t folded = 0;
  if (!get_varint(bytes, folded)) return false;
  value = static_cast<std::int64_t>(folded >> 1U) ^ -static_cast<std::int64_t>(folded & 1U);
  return true;
}

}  // namespace wflow::engine
