// SPDX-License-Identifier: Apache-2.0
// Standard output of every program. On a terminal, texts of others (names of metrics and workers, cells of
// samples, output of tasks) must not act on it: only a program's own escape sequences do. They carry a secret
// mark.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace wflow {

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
