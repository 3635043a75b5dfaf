// SPDX-License-Identifier: Apache-2.0
// The command lines of Merlin and Maestro, for tasks (.wflow/bin/merlin of their campaign) and for users
// (wflow install-shims): what they share.
#pragma once

#include <string>
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

}  // namespace wflow::cli
