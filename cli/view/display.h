// SPDX-License-Identifier: Apache-2.0
// What `wflow run` and `wflow attach` show while a campaign runs: on a terminal a picture that is drawn again
// in place, elsewhere plain lines.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/view/failure_groups.h"
#include "cli/view/terminal.h"
#include "cli/view/training_lines.h"
#include "engine/monitor/status.h"

namespace wflow::cli {

class Display {
 public:
  // What Ctrl-C is for, in the process that shows.
  enum class Interrupt { ends_campaign, ends_display };

  Display(bool quiet, Interrupt interrupt);
  void show(const engine::CampaignStatus& status);
  // The last picture, and below it what came out of the campaign.
  void finish(const engine::CampaignStatus& status);

 private:
  void draw(const Terminal& terminal, const std::vector<std::string>& lines);
  void print_changes(const engine::CampaignStatus& status, bool last);
  std::string stop_text(const engine::CampaignStatus& status, const std::string& row) const;
  std::vector<std::string> picture(const engine::CampaignStatus& status, const Terminal& terminal,
                                   bool last) const;  // the last one: what failed follows below it

  bool quiet_;
  Interrupt interrupt_;
  std::vector<int> drawn_;             // the columns of each line of the picture on the screen
  std::map<std::string, int> tenths_;  // a step: tenths of its elements that were reported
  TrainingLines training_;
  std::uint64_t reported_history_ = 0;  // numbers of the status
  FailureReporter failures_;
};

}  // namespace wflow::cli
