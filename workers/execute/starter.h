// SPDX-License-Identifier: Apache-2.0
// Starts a prepared task in a slot.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "workers/agent/machine.h"
#include "workers/execute/launcher.h"
#include "workers/execute/resources.h"
#include "workers/execute/slots.h"
#include "workers/execute/task_arrays.h"

namespace wflow::workers {

class Starter {
 public:
  // All outlive the starter.
  Starter(TaskArrays& arrays, Slots& slots, Launcher& launcher, DeviceNames devices);

  // The slot's task says what. Afterwards its process runs and stands in the slot's record. Throws Error:
  // then nothing runs.
  void start(std::size_t slot);
  // The end of the slot's task where its marker says that it is done already; nothing runs then.
  std::optional<AgentEvent> find_finished(std::size_t slot);

 private:
  void start(std::size_t slot, const TaskArray& array, steps::PreparedTask& task);
  void fill(std::size_t slot, const TaskArray& array, const steps::PreparedTask& task);
  void gather_environment(const TaskArray& array, const steps::PreparedTask& task, const Share& share);

  TaskArrays& arrays_;
  Slots& slots_;
  Launcher& launcher_;
  DeviceNames devices_;
  std::vector<const char*> pointers_;  // of the environment of the task being started
};

}  // namespace wflow::workers
