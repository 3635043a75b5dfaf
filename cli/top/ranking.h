// SPDX-License-Identifier: Apache-2.0
// Which of several trainings is best, by one metric that they report. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/wire/answers.h"

namespace wflow::cli::top {

struct RankedTraining {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::string task;
  double last = 0;  // the metric's last value; NaN: it has not reported it
  double best = 0;  // the best one so far; NaN: as above
  std::uint64_t best_epoch = 0;
  std::uint64_t epoch = 0;  // the last one of any metric
};

struct Ranking {
  std::string metric;  // by which; empty: no training has reported any
  bool higher_is_better = false;
  std::vector<RankedTraining>
      trainings;  // the best first, by their last values; those without one at the end
};

// Names of scores, accuracies and correlations; of all others less is better.
bool higher_is_better(std::string_view metric);

// By `metric`, or, where it is empty, by the first of validation_loss, val_loss, test_loss, train_loss, loss
// that a training has reported, else by the first metric there is.
Ranking ranking_of(const std::vector<engine::wire::MetricCurve>& curves, const std::string& metric = {});

}  // namespace wflow::cli::top
