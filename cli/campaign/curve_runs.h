// SPDX-License-Identifier: Apache-2.0
// Trainings to compare, from campaigns and from files of metrics: behind `wflow curves`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/wire/answers.h"

namespace wflow::cli {

// One training. Its curves are in order of their names.
struct CurveRun {
  std::string name;  // of the task, or the file's path
  std::string
      differs;  // "learning_rate 0.01, seed 3": what it does not share with the campaign's other trainings
  std::vector<engine::wire::MetricCurve> curves;
};

// Lines of JSON: objects of an epoch each as wflow-train writes them (metrics.jsonl; each number but epoch,
// step, seconds and member is a metric, names of objects within are joined by dots), or events of a task
// (docs/formats/events.md). What is neither is left out. In order of step, the last value of a step counts.
std::vector<engine::wire::MetricCurve> curves_of_lines(std::string_view text);

// Each name is a file, a directory with metrics.jsonl, or a campaign (find_campaign()); none: the newest
// campaign here. The best training of a campaign first. Error{usage} or Error{data} with a sentence where
// there is nothing to draw.
std::vector<CurveRun> curve_runs(const std::vector<std::string>& names);

}  // namespace wflow::cli
