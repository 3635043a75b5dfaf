// SPDX-License-Identifier: Apache-2.0
// Summaries of a campaign's whole record: for `wflow report`, what ran when and where, some executions, and
// how its failures spread; for `wflow top`, when tasks ended.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/states.h"
#include "engine/wire/answers.h"
#include "specs/plan/template.h"

namespace wflow::engine {

struct OverviewWish {
  std::size_t slices = 200;       // equal parts of the time from the campaign's begin to its last execution
  std::size_t executions = 1500;  // per step, chosen evenly by their elements
  std::size_t failures = 3000;    // chosen evenly by their times
  std::size_t busiest = 400;      // workers; the others are counted in the sums alone
  std::size_t runs = 5000;        // Overview::runs is empty if there are more records
};

struct Overview {
  double begin_s = 0, end_s = 0;  // Unix time
  std::uint64_t records = 0;      // records behind it; executions of less than a millisecond have none

  struct Activity {
    std::vector<double> ended;    // samples whose executions ended in each slice
    std::vector<double> running;  // executions at the same time, on average over the slice
  };
  std::map<std::string, Activity> steps;
  std::map<std::string, std::vector<double>> workers;  // by id: as Activity::running

  struct Execution {
    std::string step;
    ArrayId array = 0;
    Element element = 0;
    TaskUsage usage;
    ElementState state =
        ElementState::ready;  // the element's current one: done, failed, ..; ready: it has not ended
  };
  std::vector<Execution> executions;

  // All executions of a small campaign, in order of start.
  struct Run {
    std::string step, worker;
    TaskUsage usage;
    bool failed = false;  // this execution; a later one of the same task may have succeeded
  };
  std::vector<Run> runs;

  struct FailureCount {
    std::string step;
    std::string reason;  // as shown to users: "exit code 3"
    std::string worker;
    std::uint64_t count = 0;
  };
  std::vector<FailureCount> failure_counts;  // includes executions that were tried again
  std::vector<wire::FailureView> failures;   // some, in order of time
};

// When the tasks of a campaign ended, from its record: behind the rates that `wflow top` draws of a campaign
// at rest, and behind its replay.
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
