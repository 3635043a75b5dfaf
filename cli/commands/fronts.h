// SPDX-License-Identifier: Apache-2.0
// The command lines of Merlin and Maestro, for tasks (.wflow/bin/merlin of their campaign) and for users
// (wflow install-shims): what they share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "specs/study/study.h"

namespace wflow::cli {

// The program that runs this becomes `wflow words...`.
[[noreturn]] void become_wflow(std::vector<std::string> words);

// As options of wflow's, for become_wflow(). --vars comes last: it takes every word that follows.
void add_read_words(std::vector<std::string>& words, const specs::ReadOptions& read);

// What `merlin` does for a user. A target is a study, or a campaign's directory; none is the newest campaign
// here.
namespace front {

struct MerlinRun {
  std::string study;
  specs::ReadOptions read;
  bool local = false;  // else in the background
  bool dry = false;
};
int run(const MerlinRun& options);
// A workspace of Merlin's is adopted first.
int restart(const std::string& workspace, bool local);
int monitor(const std::string& target);
int stop_workers(const std::string& target);
// A command that has nothing to do here: one line says why.
int nothing(const std::string& command);

}  // namespace front

// ---- other_words.cc: commands of Merlin and Maestro that wflow has under another name, or does not need. A user who
// types one from habit gets wflow's command in one line.

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
