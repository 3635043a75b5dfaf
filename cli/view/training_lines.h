// SPDX-License-Identifier: Apache-2.0
// What trainings report, as lines for a pipe or a file: one for each epoch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/monitor/status.h"

namespace wflow::cli {

class TrainingLines {
 public:
  // "epoch 3: train_loss 0.12, validation_loss 0.10, and 4 more" of the epochs that were not taken before, at most
  // about `columns` wide. The metrics of an epoch may arrive one by one: the newest epoch is given when nothing was
  // added to it since the last call, or with `all`. What the first call finds is older than this display, and is
  // not given.
  std::vector<std::string> take(const engine::CampaignStatus& status, std::size_t columns, bool all);

 private:
  struct Training {
    std::uint64_t given = 0;     // the last epoch
    std::string newest_as_seen;  // the line of the newest one, in the last call
  };
  bool first_call_ = true;
  std::map<std::pair<specs::ArrayId, specs::Element>, Training> trainings_;
};

}  // namespace wflow::cli
