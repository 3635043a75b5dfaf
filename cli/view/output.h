// SPDX-License-Identifier: Apache-2.0
// Standard output of `wflow`, for every command. On a terminal, texts of others (names of metrics and workers,
// cells of samples, what tasks print) must not act on it: only this program's own escape sequences do. They carry a
// mark that nobody else knows.
#pragma once

#include <string>
#include <string_view>

namespace wflow::cli {

// From here on `stdout` makes control characters visible (base/text.h) where it is a terminal. Elsewhere
// nothing changes.
void open_output();

// `stdout` as it was: for --raw, and for what draws on the terminal with a library of its own.
void open_raw_output();

// An escape sequence of this program: own_escape("31m"), own_escape("K").
std::string own_escape(std::string_view code);

// What `stdout` does to a text that comes in pieces. `mark`: of escape sequences that pass.
class VisibleText {
 public:
  explicit VisibleText(std::string mark) : mark_(std::move(mark)) {}
  const std::string& mark() const { return mark_; }
  // What can be shown of all that was given so far; the last bytes may be kept until more comes.
  std::string take(std::string_view bytes);

 private:
  std::string mark_;  // behind "\x1b[" of own sequences
  std::string kept_;
};

}  // namespace wflow::cli
