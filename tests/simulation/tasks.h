// SPDX-License-Identifier: Apache-2.0
// What each execution of a task does: a function of (seed, array, element, attempt) alone, so that a model
// can say how the campaign must end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/coordinate/machine.h"
#include "specs/plan/plan.h"
#include "tests/simulation/timeline.h"

namespace wflow::simulation {

using engine::ArrayId;
using engine::wire::Element;
using engine::wire::LeaseId;

struct TaskScript {
  double duration_s = 0;
  bool signalled = false;
  int code = 0;  // exit code, or signal
  bool out_of_memory = false;
  bool bad_output = false;    // ends with 0, but an output is missing
  bool kills_bundle = false;  // the whole process: its elements run again in halves
  bool ignores_sigterm = false;
  bool handles_sigterm = false;  // and ends then with some exit code
  bool kills_worker = false;     // at its start, in every attempt
  bool has_children = false;     // the children outlive it unless they are ended
  int events = 0;

  bool succeeds() const { return !signalled && !bad_output && (code == 0 || code == 105); }
};

struct TaskOptions {
  double typical_s = 0.1;
  double spread = 4;  // durations within typical / spread and typical * spread
  double failures = 0;
  double stops = 0;  // exit codes 102 and 105
  double children = 0;
  double events = 0;
  double poison = 0;  // of elements: they kill their worker
};

class TaskScripts {
 public:
  TaskScripts(std::uint64_t seed, TaskOptions options) : seed_(seed), options_(options) {}
  TaskScript of(ArrayId array, Element element, std::uint32_t attempt) const;

 private:
  std::uint64_t seed_;
  TaskOptions options_;
};

// The studies that schedules run, made from YAML once a process, and the image of each one's new database.

struct SimulatedStudy {
  std::string name;
  specs::Plan plan;
  std::vector<engine::ArraySpec> arrays = {};
  std::string database = {};  // bytes of the file that Store::create() makes
  std::vector<engine::LocalGroup> groups = {};
  // Stages of trainings that follow their data set: they may report that it is enough.
  std::set<engine::ArrayId> stages = {};
  std::uint64_t elements = 0;
  bool gangs = false;  // some of its tasks take several workers of one allocation
};

struct Studies {
  std::vector<std::unique_ptr<SimulatedStudy>> all;
  std::size_t first_later = 0;            // those from here on were added later
  std::unique_ptr<SimulatedStudy> large;  // if there is one, all schedules run it
  const SimulatedStudy& of(std::uint64_t seed) const;
};

// In a temporary directory, which is gone when they are returned.
// With `workers`, all schedules run a study that is large enough for so many.
Studies make_studies(std::size_t workers = 0);

}  // namespace wflow::simulation
