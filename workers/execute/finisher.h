// SPDX-License-Identifier: Apache-2.0
// Turns the end of a slot's process into results: judges it, has its outputs checked, keeps what it printed
// and left.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/error.h"
#include "workers/agent/machine.h"
#include "workers/execute/disk_probe.h"
#include "workers/execute/output_check.h"
#include "workers/execute/packs.h"
#include "workers/execute/process_usage.h"
#include "workers/execute/slots.h"
#include "workers/execute/supervisor.h"
#include "workers/execute/task_arrays.h"

namespace wflow::workers {

class Finisher {
 public:
  // All outlive the finisher.
  Finisher(const TaskArrays& arrays, Slots& slots, Supervisor& supervisor, Launcher& launcher,
           DiskProbe& disk);

  // What the machine is told of a child that has ended in a slot: TaskEnded, or TaskChecking where its
  // outputs are looked at now.
  std::vector<AgentEvent> finish(const EndedChild& child);
  // Once the results are in the journal: until then a guardian needs the slot's files to judge.
  void clear(std::size_t slot);
  // Markers that the disk has refused; once a second at most.
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
