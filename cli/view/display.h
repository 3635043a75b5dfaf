// SPDX-License-Identifier: Apache-2.0
// What `wflow run` shows while it runs: on a terminal a picture that is drawn again in place, elsewhere plain
// lines.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/view/failure_groups.h"
#include "cli/view/terminal.h"
#include "engine/monitor/status.h"

namespace wflow::cli {

class Display {
 public:
  explicit Display(bool quiet);
  void show(const engine::CampaignStatus& status);
  // The last picture, and below it what came out of the campaign.
  void finish(const engine::CampaignStatus& status);

 private:
  // With `below` under the picture.
  void draw(const engine::CampaignStatus& status, const std::vector<std::string>& below);
  void print_changes(const engine::CampaignStatus& status);

  bool quiet_;
  int drawn_lines_ = 0;
  std::map<std::string, int> tenths_;  // a step: tenths of its elements that were reported
  std::uint64_t reported_epoch_ = 0;
  std::uint64_t reported_history_ = 0;  // numbers of the status
  FailureReporter failures_;
};

}  // namespace wflow::cli
