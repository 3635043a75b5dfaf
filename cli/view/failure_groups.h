// SPDX-License-Identifier: Apache-2.0
// Groups of similar failures, each shown as one with a count: a mistake in a script makes every task fail.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/view/terminal.h"
#include "engine/monitor/status.h"

namespace wflow::cli {

// Failures of one step that ended in the same way, with the same last line of output except for its numbers.
struct FailureGroup {
  std::string key;
  engine::FailureView first;
  std::uint64_t count = 0;  // among the failures that a status lists (engine::kListedFailures)
};

// Removes the numbers from a message, which differ between samples: paths, places and values.
std::string without_numbers(std::string_view text);

// In the order of their first failures.
std::vector<FailureGroup> group_failures(const std::vector<engine::FailureView>& failures);

// A paragraph for `wflow status` (`everything`) and the end of a run: each group with its count, its first
// task with the end of its output, and the commands that show more. Empty without a failure.
std::vector<std::string> failure_lines(const engine::CampaignStatus& status, const Terminal& terminal,
                                       bool everything);

// One line for each of the first groups, below the picture of a campaign that runs.
std::vector<std::string> failure_overview(const engine::CampaignStatus& status, const Terminal& terminal);

// For output line by line: reports the first failure of each group at once, later ones when there are ten, a
// hundred, a thousand.
class FailureReporter {
 public:
  std::vector<std::string> news(const engine::CampaignStatus& status);

 private:
  struct Seen {
    std::uint64_t count = 0;
    std::uint64_t next = 10;  // the count at which the group is reported again
  };
  std::uint64_t reported_ = 0;  // number of the newest failure that was read
  std::map<std::string, Seen> seen_;
};

}  // namespace wflow::cli
