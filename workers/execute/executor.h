// SPDX-License-Identifier: Apache-2.0
// Carries out the machine's actions on tasks and reports how tasks end: starting (Starter), watching and
// ending (supervisor), results (finisher).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workers/agent/machine.h"
#include "workers/execute/finisher.h"
#include "workers/execute/host.h"
#include "workers/execute/launcher.h"
#include "workers/execute/resources.h"
#include "workers/execute/slots.h"
#include "workers/execute/supervisor.h"

namespace wflow::workers {

// Starts a prepared task in a slot.
class Starter {
 public:
  // All outlive the starter.
  Starter(TaskArrays& arrays, Slots& slots, Launcher& launcher, DeviceNames devices);

  // Starts the task of the slot. Its process then runs and is in the slot's record. Throws Error if no
  // process runs.
  void start(std::size_t slot);
  // Returns the end of the slot's task if its marker shows that it is already done; no process runs then.
  std::optional<AgentEvent> find_finished(std::size_t slot);

 private:
  void start(std::size_t slot, const TaskArray& array, steps::PreparedTask& task);
  void fill(std::size_t slot, const TaskArray& array, const steps::PreparedTask& task);
  void gather_environment(const TaskArray& array, const steps::PreparedTask& task, const Share& share);

  TaskArrays& arrays_;
  Slots& slots_;
  Launcher& launcher_;
  DeviceNames devices_;
  std::vector<const char*> pointers_;  // environment of the task that is being started
};

class Executor {
 public:
  // `table` must outlive the executor. `directory` is the worker's own, for the files of its slots.
  Executor(SlotTable& table, const Capacity& capacity, const std::filesystem::path& directory);

  void set_samples(std::unique_ptr<const specs::SampleTable> samples);
  void add_template(specs::TaskTemplate task_template);

  // Returns TaskStarted, TaskNotStarted, or TaskEnded if a marker shows that the task is done.
  AgentEvent start(const action::StartTask& start);
  void end(const action::EndTask& end);
  void interrupt(SlotId slot);
  // Kills all processes of the lease on this node: ranks of a task on several nodes.
  static void end_ranks(const action::EndRanks& end);
  std::vector<event::TaskReports> follow_events();
  // Returns the running tasks with a stall_timeout about once a second, else an empty list.
  std::vector<event::TaskSilent> silent_tasks() { return supervisor_.silent_tasks(); }
  // Returns the memory of running tasks about once a second, else no values.
  event::TaskMemory sample_memory() { return supervisor_.sample_memory(); }
  // Notes that the slot's reports so far are in the journal. A guardian may send a line twice, but loses
  // none.
  void reported(SlotId slot);

  // A child that has ended, and the events for the machine. Call release() after the actions that follow are
  // carried out: until then the guardian can take over.
  struct Ended {
    EndedChild child;
    std::vector<AgentEvent> events;
    bool over = false;  // the slot is free after release()
  };
  std::optional<Ended> next_ended();
  void release(const Ended& ended);

  void kill_everything();  // at once

 private:
  Slots slots_;
  TaskArrays arrays_;
  Launcher launcher_;
  DiskProbe disk_;
  Starter starter_;
  Supervisor supervisor_;
  Finisher finisher_;
};

}  // namespace wflow::workers
