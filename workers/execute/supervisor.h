// SPDX-License-Identifier: Apache-2.0
// Watches and ends the processes of the slots. The machine decides when (workers/agent/machine.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "workers/agent/machine.h"
#include "workers/execute/processes.h"
#include "workers/execute/slots.h"

namespace wflow::workers {

// A child that has ended and is not reaped yet. Until then no other process gets its pid.
struct EndedChild {
  pid_t pid = 0;
  int code = 0;  // si_code and si_status of waitid()
  int status = 0;
  ProcessUsage used;
  std::optional<std::size_t> slot;  // no value: an orphan that this subreaper has adopted
};

class Supervisor {
 public:
  Supervisor(const TaskArrays& arrays, Slots& slots) : arrays_(arrays), slots_(slots) {}

  // Watches the process in the slot's record, which has been started.
  void watch(std::size_t slot) { slot_of_.emplace(slots_.records[slot].pid.load(), slot); }
  std::size_t running() const { return slot_of_.size(); }

  // Does nothing if the task has already ended by itself: it has its own result.
  void end(std::size_t slot, EndCause cause, bool kill);
  void interrupt(std::size_t slot);  // SIGUSR1
  // Kills the task's group and the processes that have left it: earlier descendants that are still below this
  // process, and processes found by their environment.
  void kill_tree(std::size_t slot);
  // Removes files that a killed tree cannot remove itself.
  void clean_up_after(std::size_t slot);

  // Returns the next child that has ended; its slot is not watched any more.
  std::optional<EndedChild> next_ended();
  static void reap(const EndedChild& child);

  // Returns the reports since the last call.
  std::vector<event::TaskReports> follow_events();
  std::vector<engine::wire::TaskEvent> read_events(std::size_t slot, bool at_end);

  // Returns how long the tasks with a stall_timeout have done nothing; about once a second, else an empty
  // list.
  std::vector<event::TaskSilent> silent_tasks();
  // Samples the memory of tasks that have run for a while, about once a second; returns the peak of
  // each.
  event::TaskMemory sample_memory();

  // Kills all processes below this one at once; returns false if some are left after `limit`.
  bool kill_everything(std::chrono::milliseconds limit);

 private:
  void end_gently(std::size_t slot, EndCause cause);
  void kill(std::size_t slot, EndCause cause);
  void note_cause(std::size_t slot, EndCause cause);
  std::vector<std::string> own_variables(std::size_t slot) const;

  const TaskArrays& arrays_;
  Slots& slots_;
  std::unordered_map<pid_t, std::size_t> slot_of_;
  double next_sample_s_ = 0;  // steady
  double next_look_s_ = 0;    // for silent tasks
  double last_look_s_ = 0;
};

}  // namespace wflow::workers
