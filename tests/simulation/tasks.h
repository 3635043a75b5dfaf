// SPDX-License-Identifier: Apache-2.0
// What each execution of a task does: a function of (seed, array, element, attempt) alone, so that a model
// can say how the campaign must end.
#pragma once

#include <cstdint>
#include <string>

#include "engine/coordinate/machine.h"
#include "tests/simulation/draw.h"

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

}  // namespace wflow::simulation
