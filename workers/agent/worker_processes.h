// SPDX-License-Identifier: Apache-2.0
// The processes of a worker, which run_worker() starts (worker.h): the guardian, the agent, and one that asks
// the scheduler for the end of the allocation.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/plain_types.h"
#include "engine/wire/keys.h"
#include "workers/agent/journal.h"
#include "workers/agent/worker.h"
#include "workers/execute/resources.h"
#include "workers/execute/slot_table.h"

namespace wflow::workers {

// The end of this worker's batch allocation. Schedulers may move the end, and a query may take half a minute.
// A child process of the guardian therefore asks, and writes the answer into shared memory.
class EndWatch {
 public:
  using Ask = std::function<std::optional<double>()>;

  // `ends_unix_s`: the end as known so far; 0: not known.
  explicit EndWatch(double ends_unix_s);
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;
  ~EndWatch();

  // Forks the process that asks every `period_s`. It ends with this process.
  void start(const Ask& ask, double period_s);
  // 0: not known.
  double ends_unix_s() const { return *shared_; }

 private:
  std::atomic<double>* shared_ = nullptr;
};

// Values that are fixed before the fork.
struct Identity {
  std::string worker;  // "<host>-<pid>-<random>"
  ProcessIdentity guardian;
  std::filesystem::path directory;  // <campaign>/.wflow/workers/<worker>
  engine::wire::CampaignKeys keys;
};

// Talks to the coordinator and runs tasks, with one thread and one loop. Returns the exit code of the
// process.
int run_agent(const WorkerOptions& options, const Identity& identity, const Capacity& capacity,
              const EndWatch& end, SlotTable& table, Journal& journal);

// Blocks the signals that guardian and agent wait for instead of being interrupted. Call it before the fork.
void block_signals();

// The guardian, the parent process of the agent: waits for the end of the agent, writes the results of
// finished tasks to the journal and kills all processes that are left. `directory` holds the event files; the
// guardian removes it. Returns the worker's exit code.
int run_guardian(pid_t agent, const WorkerOptions& options, SlotTable& table, Journal& journal,
                 const std::filesystem::path& directory);

}  // namespace wflow::workers
