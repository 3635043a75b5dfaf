// SPDX-License-Identifier: Apache-2.0
// Carries out what the agent's machine wants of tasks, and says how they end: starting (starter), watching
// and ending (supervisor), results (finisher).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "workers/agent/machine.h"
#include "workers/execute/disk_probe.h"
#include "workers/execute/finisher.h"
#include "workers/execute/launcher.h"
#include "workers/execute/slots.h"
#include "workers/execute/starter.h"
#include "workers/execute/supervisor.h"
#include "workers/execute/task_arrays.h"

namespace wflow::workers {

class Executor {
 public:
  // `table` outlives the executor. `directory` is the worker's own, for the files of its slots.
  Executor(SlotTable& table, const Capacity& capacity, const std::filesystem::path& directory);

  void set_samples(std::unique_ptr<const specs::SampleTable> samples);
  void add_template(specs::TaskTemplate task_template);

  // TaskStarted, TaskNotStarted, or TaskEnded where a marker says that it is done.
  AgentEvent start(const action::StartTask& start);
  void end(const action::EndTask& end);
  void interrupt(SlotId slot);
  // Kills all processes of the lease on this node: ranks of a task on several nodes.
  static void end_ranks(const action::EndRanks& end);
  std::vector<event::TaskReports> follow_events();
  // Running tasks with a stall_timeout; about once a second, else none.
  std::vector<event::TaskSilent> silent_tasks() { return supervisor_.silent_tasks(); }
  // What running tasks hold; about once a second, else nothing.
  event::TaskMemory sample_memory() { return supervisor_.sample_memory(); }
  // The slot's reports so far are in the journal. A guardian may send a line twice, but loses none.
  void reported(SlotId slot);

  // A child that has ended, and what the machine is to be told of it. release() once the actions that follow
  // are carried out: until then the guardian could take over.
  struct Ended {
    EndedChild child;
    std::vector<AgentEvent> events;
    bool over = false;  // its slot is free after release()
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
