// SPDX-License-Identifier: Apache-2.0
// Watches and ends the processes of the slots. When is the machine's decision (workers/agent/machine.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "workers/agent/machine.h"
#include "workers/execute/process_usage.h"
#include "workers/execute/slots.h"
#include "workers/execute/task_arrays.h"

namespace wflow::workers {

// A child that has ended and is not reaped yet. Its number is its own until then.
struct EndedChild {
  pid_t pid = 0;
  int code = 0;  // as waitid() gives them
  int status = 0;
  ProcessUsage used;
  std::optional<std::size_t> slot;  // absent: an orphan that this subreaper has adopted
};

class Supervisor {
 public:
  Supervisor(const TaskArrays& arrays, Slots& slots) : arrays_(arrays), slots_(slots) {}

  // The process in the slot's record runs from now on.
  void watch(std::size_t slot) { slot_of_.emplace(slots_.records[slot].pid.load(), slot); }
  std::size_t running() const { return slot_of_.size(); }

  // What has ended by itself before has its own result and is left alone.
  void end(std::size_t slot, EndCause cause, bool kill);
  void interrupt(std::size_t slot);  // SIGUSR1
  // The task's group, and what has left it: descendants from before that are still ours, and what is known by
  // its environment alone.
  void kill_tree(std::size_t slot);
  // Removes what a killed tree can't remove itself.
  void clean_up_after(std::size_t slot);

  // The next child that has ended; its slot is not watched any more.
  std::optional<EndedChild> next_ended();
  static void reap(const EndedChild& child);

  // What tasks have reported since.
  std::vector<event::TaskReports> follow_events();
  std::vector<engine::wire::TaskEvent> read_events(std::size_t slot, bool at_end);

  // For how long those with a stall_timeout have done nothing; about once a second, else none.
  std::vector<event::TaskSilent> silent_tasks();
  // Looks at the memory of tasks that have run for a while, about once a second; gives the most that each of
  // them has held.
  event::TaskMemory sample_memory();

  // All processes below this one, at once; false when some are still there after `limit`.
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
