// SPDX-License-Identifier: Apache-2.0
// The output of `wflow run` and `wflow attach` while a campaign runs: on a terminal a picture that is redrawn
// in place, elsewhere plain lines.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/view/failure_groups.h"
#include "cli/view/terminal.h"
#include "engine/monitor/status.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

class TrainingLines {
 public:
  // "epoch 3: train_loss 0.12, validation_loss 0.10, and 4 more" for each new epoch, at most about `columns`
  // wide. The metrics of an epoch may arrive one by one: the newest epoch is returned once a call adds
  // nothing to it, or with `all`. Epochs that the first call finds are older than this display and are not
  // returned.
  std::vector<std::string> take(const engine::CampaignStatus& status, std::size_t columns, bool all);

 private:
  struct Training {
    std::uint64_t given = 0;     // the last epoch that was returned
    std::string newest_as_seen;  // the line of the newest one, in the last call
  };
  bool first_call_ = true;
  std::map<std::string, Training> trainings_;  // by the name of the task
};

// "12 % done: simulate 512/4,096, data 0/1; 3 failed; at least 4 min 12 s left", in at most so many columns.
std::string progress_line(const engine::CampaignStatus& status, std::size_t columns);

class Display {
 public:
  // The effect of Ctrl-C in the process that shows the campaign.
  enum class Interrupt { ends_campaign, ends_display };

  Display(bool quiet, Interrupt interrupt);
  void show(const engine::CampaignStatus& status);
  // Shows the last picture and, below it, the outcome of the campaign.
  void finish(const engine::CampaignStatus& status);
  // The same with one curve for each training (with_one_curve_each). `plan` is that of the campaign.
  void show(const specs::Plan& plan, const engine::CampaignStatus& status);
  void finish(const specs::Plan& plan, const engine::CampaignStatus& status);

  // The picture on such a terminal. Below the last one, failures follow.
  std::vector<std::string> picture(const engine::CampaignStatus& status, const Terminal& terminal,
                                   bool last) const;

 private:
  void draw(const std::vector<std::string>& lines);
  void print_changes(const engine::CampaignStatus& status, bool last);
  void print_progress(const engine::CampaignStatus& status, const std::string& stamp, bool last);
  // Seconds since the first picture, in the command that runs the campaign.
  std::optional<double> command_s(const engine::CampaignStatus& status) const;
  std::string stop_text(const engine::CampaignStatus& status, const std::string& row) const;

  bool quiet_;
  Interrupt interrupt_;
  std::vector<int> drawn_;             // columns of each line of the picture on the screen
  std::map<std::string, int> tenths_;  // by step: tenths of its elements that were reported
  std::optional<double> progress_s_;   // when the last line about progress was printed, Unix time
  std::optional<double> began_s_;      // the campaign's elapsed time in the first picture
  TrainingLines training_;
  std::uint64_t reported_history_ = 0;  // number of the last history row that was printed
  FailureReporter failures_;
};

}  // namespace wflow::cli
