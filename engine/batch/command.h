// SPDX-License-Identifier: Apache-2.0
// How adapters call their scheduler: with a cleaned environment and a time-out; and the words they share to
// read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/batch/batch_system.h"

namespace wflow::engine::batch {

struct CommandAnswer {
  bool started = false;  // false: there is no such program here
  bool timed_out = false;
  int status = 0;
  std::string out, err;

  bool ok() const { return started && !timed_out && status == 0; }
  // Why it is not ok, in one line: the scheduler's message if there is one.
  std::string problem() const;

  std::string program;
};

struct CommandCall {
  std::string_view scheduler;  // whose environment it gets: "slurm"
  std::vector<std::string> argv;
  std::string directory;                 // empty: the caller's
  std::string input;                     // a file; empty: none
  std::vector<std::string> environment;  // "NAME=value", beside the caller's
};

// At most BatchSystem::kCallTimeout_s. Never throws.
CommandAnswer call(const CommandCall& command);

// A line of `text` that the patterns know, for refusals: any of them is part of it, whatever the case.
bool mentions_any(std::string_view text, const std::vector<std::string_view>& patterns);

// The refusal in `answer`: fatal if the program is missing, wait if it took too long or its message matches
// `passes`, else fix.
Submission refused(const CommandAnswer& answer, const std::vector<std::string_view>& passes);

// Words of a scheduler on one line, at most so long that a status line holds them.
std::string one_line(std::string_view text);

std::vector<std::string_view> lines_of(std::string_view text);

// The user of this process as schedulers know it: $USER may be unset or wrong.
std::string user_name();

}  // namespace wflow::engine::batch
