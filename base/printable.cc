// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <algorithm>
#include <array>
#include <utility>

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

namespace {

// C1 controls, and what changes the direction of text: U+0080 to U+009F, U+200E, U+200F, U+202A to U+202E, U+2066 to
// U+2069.
std::string_view name_of_hidden(std::string_view character) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kHidden = {
      {{"\xe2\x80\x8e", "<U+200E>"}, {"\xe2\x80\x8f", "<U+200F>"}, {"\xe2\x80\xaa", "<U+202A>"},
       {"\xe2\x80\xab", "<U+202B>"}, {"\xe2\x80\xac", "<U+202C>"}, {"\xe2\x80\xad", "<U+202D>"},
       {"\xe2\x80\xae", "<U+202E>"}, {"\xe2\x81\xa6", "<U+2066>"}, {"\xe2\x81\xa7", "<U+2067>"},
       {"\xe2\x81\xa8", "<U+2068>"}, {"\xe2\x81\xa9", "<U+2069>"}}};
  const auto found = std::find_if(kHidden.begin(), kHidden.end(),
                                  [&](const auto& hidden) { return hidden.first == character; });
  return found == kHidden.end() ? std::string_view() : found->second;
}

void append_hex(std::string& text, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  text.append({kDigits[byte >> 4U], kDigits[byte & 0xfU]});
}

}  // namespace

std::string visible(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes.front());
    const std::size_t length = character_length(bytes);
    const std::string_view character = bytes.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0) {
      text += '<';
      append_hex(text, first);
      text += '>';
    } else if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7f) {
      text.append({'^', static_cast<char>(first ^ 0x40U)});
    } else if (first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0) {
      text += "<U+00";
      append_hex(text, static_cast<unsigned char>(character[1]));
      text += '>';
    } else if (const std::string_view name = name_of_hidden(character); !name.empty()) {
      text += name;
    } else {
      text += character;
    }
    bytes.remove_prefix(character.size());
  }
  return text;
}

std::size_t cut_character(std::string_view bytes) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(bytes.size(), 3); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xc0U) == 0x80) continue;
    const std::size_t length = byte < 0xc2 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 1;
    return length > back ? back : 0;
  }
  return 0;
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
