// SPDX-License-Identifier: Apache-2.0
// The tasks of a simulated worker: the kernel's and the slot table's view of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "tests/simulation/surroundings.h"
#include "workers/execute/process_end.h"

namespace wflow::simulation {

struct RunningTask {
  std::uint64_t number = 0;  // no two of a worker have the same
  wire::Lease lease;
  ExecutionNumber execution = 0;
  double started_unix_s = 0, started_steady_s = 0;
  double ended_steady_s = 0;
  bool exits = false;     // it has called exit, or a signal has ended it: its status is fixed
  bool ended = false;     // a zombie: its slot is still taken
  bool own = false;       // really ended by itself, and not by a signal of its worker
  bool checking = false;  // its outputs are being looked at
  bool checked = false;
  bool killed_from_outside = false;
  workers::ProcessEnd end;                   // as waitid() gives it
  workers::EndSignals signals;               // that its worker has sent, as the slot's record has them
  std::optional<workers::EndCause> decided;  // the machine wants it to end
  std::optional<workers::EndCause> cause;    // and a signal for it was sent
  int events_left = 0;
};

// How a task's process is judged, by its agent or its guardian.
struct Judgement {
  wire::Results results;
  std::vector<wire::Lease> again;
};

class TaskTable {
 public:
  // `ended`: the process of this slot has become a zombie.
  TaskTable(Surroundings& around, Host& host, WorkerNumber worker, std::function<void(workers::SlotId)> ended,
            std::function<void()> kill_agent);

  void start(workers::SlotId slot, const wire::Lease& lease);
  void signal(workers::SlotId slot, workers::EndCause cause, bool kill);
  // By somebody else.
  bool kill_from_outside(std::uint64_t choice);
  RunningTask* find(workers::SlotId slot);
  std::map<workers::SlotId, RunningTask>& all() { return tasks_; }
  void remove(workers::SlotId slot) { tasks_.erase(slot); }

  Judgement judge(const RunningTask& task) const;
  // Its success is no secret: whoever judges it must come to the same.
  bool must_be_done(const RunningTask& task) const;
  bool needs_check(const RunningTask& task) const;
  std::vector<wire::TaskEvent> take_events(RunningTask& task) const;

  // The agent has died: every leader is killed with it. What leaders have started lives on until somebody
  // ends it.
  void kill_leaders();
  void end_children();   // by the guardian, or by a coordinator on this host
  void leave_orphans();  // the guardian has died, too
  void vanish();         // the host has crashed

 private:
  TaskScript script(const RunningTask& task, Element element) const;
  bool has_children(const RunningTask& task) const;
  bool ended_by_itself(const RunningTask& task) const;
  workers::ProcessEnd own_end(const RunningTask& task) const;
  void arrive(workers::SlotId slot, std::uint64_t number, workers::EndCause cause, bool kill);
  double duration_s(const wire::Lease& lease) const;
  void exit_at(workers::SlotId slot, std::uint64_t number, double delay_s, workers::ProcessEnd end, bool own);
  void exit(workers::SlotId slot, std::uint64_t number, workers::ProcessEnd end, bool own);
  void bury(workers::SlotId slot, std::uint64_t number);

  Surroundings& around_;
  Host& host_;
  WorkerNumber worker_;
  std::function<void(workers::SlotId)> ended_;
  std::function<void()> kill_agent_;
  std::map<workers::SlotId, RunningTask> tasks_;
  std::vector<ExecutionNumber> children_;  // children of leaders that were killed with their agent
  std::uint64_t next_ = 0;
};

}  // namespace wflow::simulation
