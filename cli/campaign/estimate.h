// SPDX-License-Identifier: Apache-2.0
// What a whole campaign would take, reckoned from a small one of the same study that has run (wflow plan
// --sample). Pure.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/campaign/usage.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

// From the fastest measured task to the slowest one.
struct Span {
  double low = 0, high = 0;
};

struct StepEstimate {
  std::string name;
  std::uint64_t tasks = 0;     // of the whole campaign
  std::uint64_t measured = 0;  // that ran
  Span task_s;
  double cores_used = 0;
  int cores_asked = 1;
  double peak_bytes = 0;  // the largest
  Span core_h, node_h, disk_bytes;
};

struct Estimate {
  std::uint64_t of = 0;  // tasks of each step that were to run
  int node_cores = 1;
  std::vector<StepEstimate> steps;
  std::vector<std::string> left_out;  // trainings and the steps that need them
  Span core_h, node_h, disk_bytes;
  double peak_bytes = 0;
};

// The steps of `plan` that wait for a training, and the trainings.
std::vector<std::size_t> steps_of_trainings(const specs::Plan& plan);

// `disk`: bytes in the directories of each step of the small campaign. A step that runs once and follows on
// samples may take as long as it did, or grow with their number: its span has both.
Estimate estimate_of(const specs::Plan& whole, const specs::Plan& small, const UsageFacts& measured,
                     const std::map<std::string, std::uint64_t>& disk, std::uint64_t of, int node_cores);

std::string text_of(const Estimate& estimate);
nlohmann::ordered_json to_json(const Estimate& estimate);

}  // namespace wflow::cli
