// SPDX-License-Identifier: Apache-2.0
// Commands of Merlin and Maestro that wflow has under another name, or does not need: who types one from
// habit gets wflow's command in one line.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace wflow::cli {

struct OtherWord {
  std::string_view word;     // as Merlin or Maestro has it
  std::string_view instead;  // what to type here, or why there is nothing to type
};

// In the order of their alphabet.
std::span<const OtherWord> other_words();

// The line for `word`, empty where it is no such word.
std::string_view instead_of(std::string_view word);

// Throws Error{usage} with the line for `word`; returns where it is no such word.
void answer_other_word(const std::string& word);

}  // namespace wflow::cli
