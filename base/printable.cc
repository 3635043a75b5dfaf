// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

namespace wflow {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Length of the well-formed UTF-8 character at the beginning (RFC 3629), 0 if there is none.
std::size_t character_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : static_cast<unsigned char>(0);
  };
  const unsigned lead = at(0);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc2 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && at(1) < 0xa0) || (lead == 0xf0 && at(1) < 0x90);
  const bool surrogate = lead == 0xed && at(1) > 0x9f;
  const bool too_great = lead == 0xf4 && at(1) > 0x8f;
  return overlong || surrogate || too_great ? 0 : length;
}

// "\x1b[31m", "\x1b[K": 0 if there is none at the beginning.
std::size_t escape_length(std::string_view bytes) {
  if (!bytes.starts_with("\x1b[")) return 0;
  const std::size_t end = bytes.find_first_not_of("0123456789;?", 2);
  return end == std::string_view::npos ? bytes.size() : end + 1;
}

}  // namespace

std::string printable(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes.front());
    const std::size_t escape = escape_length(bytes);
    const std::size_t length = escape > 0 ? escape : character_length(bytes);
    if (length == 0) {
      text += kReplacement;
    } else if (escape == 0) {
      const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
      control ? text.push_back('?') : void(text.append(bytes.substr(0, length)));
    }
    bytes.remove_prefix(length == 0 ? 1 : length);
  }
  return text;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = character_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

}  // namespace wflow
