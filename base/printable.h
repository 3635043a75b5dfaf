// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace wflow {

// What a program printed, as text that JSON can hold and a terminal can show: bytes that are no UTF-8 become
// U+FFFD, control characters but line feed and tab become '?'. Escape sequences that set colours are left
// out.
std::string printable(std::string_view bytes);

bool is_utf8(std::string_view bytes);

}  // namespace wflow
