// SPDX-License-Identifier: Apache-2.0
// The parts that the command lines of Merlin and Maestro share, for tasks (.wflow/bin/merlin of their
// campaign) and for users (wflow install-shims).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/commands.h"
#include "specs/study/study.h"

namespace wflow::cli {

// Replaces this process by `wflow words...`.
[[noreturn]] void become_wflow(std::vector<std::string> words);

// Adds these as options of wflow, for become_wflow(). --vars comes last: it takes every word that follows.
void add_read_words(std::vector<std::string>& words, const specs::ReadOptions& read);

// Adds the command `name`, which runs `action`, and returns it for its options.
using AddCommand = std::function<CLI::App*(const std::string& name, const Command& action)>;

// Parses `words` with the commands that `add_all` adds, and runs the one that they name. `program`: "merlin".
int run_front(const std::string& program, std::vector<std::string> words,
              const std::function<void(const AddCommand& add)>& add_all);

// ---- merlin_views.cc: merlin status, detailed-status, queue-info and query-workers
void add_merlin_views(const AddCommand& add);

// merlin_front.cc: the name of the campaign that such a command means, for find_campaign(): in a task its own
// campaign, unless the task names another one.
std::string merlins_campaign(const std::string& named);

// ---- other_words.cc: commands and options of other programs that wflow has under another name, or does not
// need. A user who types one from habit gets wflow's command in one line.

struct OtherWord {
  std::string_view word;     // the command or option
  std::string_view instead;  // the command of wflow, or why there is none
};

// In alphabetical order.
std::span<const OtherWord> other_words();

// The line for `word`; empty if there is none.
std::string_view instead_of(std::string_view word);

// Throws Error{usage} for words that a command does not expect: with the option that was meant, or the
// command in place of another program's option.
[[noreturn]] void refuse_words(const CLI::App& command, const std::vector<std::string>& words);

// Throws Error{usage} with the line for `word`; returns if there is none.
void answer_other_word(const std::string& word);

}  // namespace wflow::cli
