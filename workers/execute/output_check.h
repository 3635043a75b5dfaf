// SPDX-License-Identifier: Apache-2.0
// Whether a task that has ended well has left what its step declares: files that are there, and in which
// `wflow-convert check`, a process in the task's slot, finds what they must hold.
#pragma once

#include <cstddef>

#include "workers/execute/launcher.h"
#include "workers/execute/slots.h"
#include "workers/execute/task_arrays.h"

namespace wflow::workers {

class OutputCheck {
 public:
  OutputCheck(const TaskArrays& arrays, Slots& slots, Launcher& launcher)
      : arrays_(arrays), slots_(slots), launcher_(launcher) {}

  // Whether a process that looks at the outputs runs in the task's slot now; otherwise `ending` says how they
  // are.
  bool start(std::size_t slot, Ending& ending);
  // How the task has ended, by the end of that process.
  Ending judge(std::size_t slot, int code, int status) const;

 private:
  const TaskArrays& arrays_;
  Slots& slots_;
  Launcher& launcher_;
};

}  // namespace wflow::workers
