// SPDX-License-Identifier: Apache-2.0
// Small text helpers shared by messages and reports.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::text {

// Number of single-character insertions, deletions, substitutions and swaps of neighbours between a and b.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, if one is near enough to be what was meant.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'x'?" or an empty string.
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
std::string lower(std::string_view text);
bool starts_with_any(std::string_view text, std::span<const std::string> prefixes);

// Whole-text conversions: nothing if any character is left over.
std::optional<std::int64_t> to_integer(std::string_view text);
std::optional<double> to_real(std::string_view text);

// The shortest text that reads back as exactly this number.
std::string from_real(double value);

std::string format_count(std::uint64_t value);  // 1234567 -> "1,234,567"
std::string format_bytes(std::uint64_t bytes);  // "12.3 MiB"
std::string format_duration(double seconds);    // "850 ms", "12.3 s", "4 min 05 s", "2 h 03 min"

// Quotes for /bin/sh only where needed.
std::string shell_quote(std::string_view word);

// `text` cut to its last `limit` bytes, starting at a line where possible.
std::string tail(std::string_view text, std::size_t limit);

}  // namespace wflow::text
