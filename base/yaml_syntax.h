// SPDX-License-Identifier: Apache-2.0
// What is wrong with a text that is no YAML, in words for its author: a parser notices an open bracket or a
// wrong indentation lines later, and says what it missed there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/yaml.h"

namespace wflow::yaml {

struct SyntaxError {
  Mark mark;  // where to look
  std::string message;
};

// `noticed`: where the parser gave up; `words`: what it said, for what is not known here.
SyntaxError explain_syntax(std::string_view text, const Mark& noticed, std::string_view words);

// A text in quotes that does not end, and begins at `quote`: the parser takes the rest of the file for it
// without a word.
std::optional<SyntaxError> find_open_quote(std::string_view text, const Mark& quote);

}  // namespace wflow::yaml
