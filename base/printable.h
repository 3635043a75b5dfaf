// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace wflow {

// What a program printed, as text that JSON can hold and a terminal can show: bytes that are no UTF-8 become
// U+FFFD, control characters but line feed and tab become '?'. Escape sequences that set colours are left
// out.
std::string printable(std::string_view bytes);

// The text for a terminal, with what acts on one made visible as `less` shows it: ^[ for an escape, ^M, <9B> for a
// byte that is no UTF-8, <U+202E> for what turns the direction of text. Line feeds and tabs stay.
std::string visible(std::string_view bytes);

// How many bytes at the end may be the beginning of a UTF-8 character that goes on behind them: 0 to 3.
std::size_t cut_character(std::string_view bytes);

bool is_utf8(std::string_view bytes);

}  // namespace wflow
