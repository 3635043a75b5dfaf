// SPDX-License-Identifier: Apache-2.0
// Turns the end of a slot's process into results: judges the end, has the outputs checked, and keeps the
// task's output and files.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "steps/packed_output.h"
#include "workers/agent/machine.h"
#include "workers/execute/host.h"
#include "workers/execute/launcher.h"
#include "workers/execute/processes.h"
#include "workers/execute/slots.h"
#include "workers/execute/supervisor.h"

namespace wflow::workers {

// Checks that a task that has succeeded has left its declared outputs: that the files exist, and with
// `wflow-convert check`, a process in the task's slot, what they contain.
class OutputCheck {
 public:
  OutputCheck(const TaskArrays& arrays, Slots& slots, Launcher& launcher)
      : arrays_(arrays), slots_(slots), launcher_(launcher) {}

  // Returns true if a process that checks the outputs now runs in the task's slot. Otherwise `ending` holds
  // the result.
  bool start(std::size_t slot, Ending& ending);
  // Returns the ending of the task, given the end of that process.
  Ending judge(std::size_t slot, int code, int status) const;

 private:
  const TaskArrays& arrays_;
  Slots& slots_;
  Launcher& launcher_;
};

// The packed output files that this worker has open.
class Packs {
 public:
  explicit Packs(std::string worker) : worker_(std::move(worker)) {}

  // Adds the output of the slot's task to its step's pack. Throws Error{system}.
  void add(Slots& slots, std::size_t slot, const Ending& ending, double unix_s);

 private:
  std::string worker_;
  std::map<specs::ArrayId, steps::PackWriter> open_;
};

class Finisher {
 public:
  // All arguments must outlive the finisher.
  Finisher(const TaskArrays& arrays, Slots& slots, Supervisor& supervisor, Launcher& launcher,
           DiskProbe& disk);

  // Returns the event for a child that has ended in a slot: TaskEnded, or TaskChecking if its outputs are
  // being checked.
  std::vector<AgentEvent> finish(const EndedChild& child);
  // Frees the slot. Call it once the results are in the journal: until then a guardian needs the slot's
  // files.
  void clear(std::size_t slot);
  // Tries again to write markers that the disk has refused, once a second at most.
  void mark_again();

 private:
  void note_memory_kill(std::size_t slot, Ending& ending);
  void note_disk(std::size_t slot, Ending& ending);
  std::vector<AgentEvent> checking(std::size_t slot, std::vector<engine::wire::TaskEvent>&& events);
  void add_results(std::size_t slot, Ending& ending, event::TaskEnded& ended);
  void keep_printed(std::size_t slot, Ending& ending);
  void add_parts(std::size_t slot, std::vector<engine::wire::Lease>&& parts, const Ending& ending,
                 event::TaskEnded& ended);
  void complain(const Error& error);

  struct Unmarked {
    std::string marker;
    engine::wire::LeaseId lease = 0;
    bool trusted = false;
  };

  const TaskArrays& arrays_;
  Slots& slots_;
  Supervisor& supervisor_;
  OutputCheck check_;
  Packs packs_;
  MemoryKills memory_kills_;
  DiskProbe& disk_;
  std::vector<Unmarked> unmarked_;
  double mark_again_s_ = 0;  // steady
  bool complained_ = false;
};

}  // namespace wflow::workers
