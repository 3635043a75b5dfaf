// SPDX-License-Identifier: Apache-2.0
// When the tasks of a campaign ended, from its record: behind the rates that `wflow top` draws of a campaign
// at rest, and behind its replay.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::engine {

struct Timeline {
  double begin_s = 0, end_s = 0;  // Unix time
  // By step: the samples whose executions ended within each of equal slices of that time. Executions of less
  // than a millisecond have no record, and of very many only some have one: shares count, not sums.
  std::map<std::string, std::vector<double>> ended;
  // By task (array, element): at which time (Unix, rising) it reported metrics of which training step.
  struct Report {
    double time_s = 0;
    std::uint64_t step = 0;
  };
  std::map<std::pair<specs::ArrayId, specs::Element>, std::vector<Report>> reports;
};

}  // namespace wflow::engine
