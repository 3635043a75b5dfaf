// SPDX-License-Identifier: Apache-2.0
// A campaign's whole record in few numbers, for `wflow report`: what ran when and where, some executions, and
// how its failures spread.
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
  std::size_t slices = 200;       // of the time from the campaign's begin to its last execution
  std::size_t executions = 1500;  // of a step, chosen evenly by their elements
  std::size_t failures = 3000;    // chosen evenly by their times
  std::size_t busiest = 400;      // workers; the others are counted in the sums alone
};

struct Overview {
  double begin_s = 0, end_s = 0;  // Unix time
  std::uint64_t records = 0;      // executions that it is made of; those of less than a millisecond have none

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
        ElementState::ready;  // of the element by now: done, failed, ..; ready: it has not ended
  };
  std::vector<Execution> executions;

  struct FailureCount {
    std::string step;
    std::string reason;  // for people: "exit code 3"
    std::string worker;
    std::uint64_t count = 0;
  };
  std::vector<FailureCount> failure_counts;  // of executions, also of those that were tried again
  std::vector<wire::FailureView> failures;   // some, in order of time
};

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
