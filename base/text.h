// SPDX-License-Identifier: Apache-2.0
// Text helpers that messages and reports share, and text of programs made safe for terminals and JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wflow::text {

// Number of single-character insertions, deletions, substitutions and swaps of neighbours between a and b.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, if one is near enough to be a typing error.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'x'?" or an empty string.
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
std::string lower(std::string_view text);
bool starts_with_any(std::string_view text, std::span<const std::string> prefixes);

// Convert the whole text: nothing if a character is left over.
std::optional<std::int64_t> to_integer(std::string_view text);
std::optional<double> to_real(std::string_view text);

// The shortest text that reads back as exactly this number.
std::string from_real(double value);

std::string format_count(std::uint64_t value);  // 1234567 -> "1,234,567"
std::string format_bytes(std::uint64_t bytes);  // "12.3 MiB"
std::string format_duration(double seconds);    // "850 ms", "12.3 s", "4 min 05 s", "2 h 03 min"

// Quotes for /bin/sh only if necessary.
std::string shell_quote(std::string_view word);

// `text` cut to its last `limit` bytes, starting at a line where possible.
std::string tail(std::string_view text, std::size_t limit);

}  // namespace wflow::text

namespace wflow {

// Makes a program's output text that JSON can hold and a terminal can show: bytes that are not UTF-8 become
// U+FFFD, control characters except line feed and tab become '?'. Escape sequences that set colours are
// removed.
std::string printable(std::string_view bytes);

// Makes control characters visible as `less` does: ^[ for an escape, ^M, <9B> for a byte that is not UTF-8,
// <U+202E> for a character that changes the direction of text. Line feeds and tabs stay.
std::string visible(std::string_view bytes);

// The number of bytes at the end that may begin an incomplete UTF-8 character: 0 to 3.
std::size_t cut_character(std::string_view bytes);

bool is_utf8(std::string_view bytes);

// Standard output of every program. On a terminal, texts of others (names of metrics and workers, cells of
// samples, output of tasks) must not act on it: only a program's own escape sequences do. They carry a secret
// mark.

// From now on, `stdout` makes control characters visible if it is a terminal. Otherwise nothing changes.
void open_output();

// Restores `stdout`: for --raw, and for code that draws on the terminal with a library of its own.
void open_raw_output();

// An escape sequence of this program: own_escape("31m"), own_escape("K").
std::string own_escape(std::string_view code);

// Makes a text visible that comes in pieces, as `stdout` does. Escape sequences with `mark` pass.
class VisibleText {
 public:
  explicit VisibleText(std::string mark) : mark_(std::move(mark)) {}
  const std::string& mark() const { return mark_; }
  // Returns the visible form of the text so far. The last bytes may be kept until more arrive.
  std::string take(std::string_view bytes);

 private:
  std::string mark_;  // follows "\x1b[" in own sequences
  std::string kept_;
};

}  // namespace wflow
