// SPDX-License-Identifier: Apache-2.0
// Runs leased elements: starts as many as fit, follows them, and turns their ends into results.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/wire/messages.h"
#include "specs/samples/samples.h"
#include "steps/step.h"
#include "workers/agent/agent.h"
#include "workers/agent/journal.h"
#include "workers/agent/lease_queue.h"
#include "workers/agent/outbox.h"
#include "workers/execute/event_tail.h"
#include "workers/execute/launcher.h"
#include "workers/execute/resources.h"
#include "workers/execute/slot_table.h"

namespace wflow::workers {

class Executor {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // All references outlive the executor. `directory` is for the event files.
  Executor(const WorkerOptions& options, SlotTable& table, Journal& journal, Outbox& outbox,
           const std::filesystem::path& directory);

  ~Executor();

  void set_samples(std::unique_ptr<const specs::SampleTable> samples);
  void add_template(specs::TaskTemplate task_template);
  void add_lease(const engine::wire::Lease& lease, Time now);

  LeaseQueue& queue() { return queue_; }
  std::size_t running() const { return slot_of_.size(); }
  std::vector<engine::wire::RunningElement> running_elements() const;
  // What is left of all leases: queued and running elements.
  std::vector<engine::wire::Lease> held() const;

  // Starts what fits, up to a bound a call; true when it stopped at the bound.
  bool start_ready(Time now);
  // Takes every child that has ended.
  void reap(Time now);
  void follow_events(Time now);
  // Ends what has run too long, and kills what has been told to end.
  void enforce_limits(Time now);
  Time next_limit() const;  // when enforce_limits() has something to do; max() if never

  // Ends running elements of these leases (of all leases where there are none) with the result `cancelled`.
  void cancel(std::span<const engine::wire::LeaseId> leases, Time now);
  // Lets trainings write a checkpoint and end (SIGUSR1): what a drain would else have to wait for. They go on
  // later.
  void interrupt_trainings();
  // Ends all that runs without a result; gives what was running, one lease an element.
  std::vector<engine::wire::Lease> give_back_running(Time now);
  void kill_everything();  // at once

 private:
  struct Array;
  struct Task {
    engine::wire::Lease lease;  // of the elements of this process alone
    Share share;
    Time end_by = Time::max();   // its time limit
    Time kill_at = Time::max();  // after SIGTERM
    bool interrupted = false;    // asked to end at a checkpoint
    std::vector<pid_t> below;    // its descendants when it was told to end
    EventTail events;
  };

  bool start_next(Time now);
  void launch(const engine::wire::Lease& lease, Array& array, std::size_t slot, Time now);
  void open_step(Array& array);
  void start(const engine::wire::Lease& lease, const Array& array, steps::PreparedTask& task,
             std::size_t slot);
  void gather_environment(const Array& array, const steps::PreparedTask& task, const Share& share);
  void fill(std::size_t slot, const engine::wire::Lease& lease, const Array& array,
            const steps::PreparedTask& task);
  // Whether a process that looks at the task's outputs runs in its slot now; otherwise `ending` says how they
  // are.
  bool start_check(std::size_t slot, Ending& ending);
  Ending judge_check(std::size_t slot, int code, int status) const;
  void refuse(const engine::wire::Lease& lease, const std::string& why, Time now);
  void finish(std::size_t slot, int code, int status, Time now);
  void run_again(std::size_t slot, const std::vector<engine::wire::Lease>& parts, const Ending& ending,
                 engine::wire::Results& results);
  void terminate(std::size_t slot, engine::wire::EndReason reason, Time now);
  void kill_tree(std::size_t slot);
  std::vector<std::string> own_variables(std::size_t slot) const;
  // Counted as read in the slot only once they are in the journal: its guardian may send a line twice, but
  // loses none.
  void take_events(std::size_t slot, bool at_end, engine::wire::Results& results);
  void pack(std::size_t slot, const Ending& ending, double now_s);
  void empty_output(std::size_t slot);
  void give_up(const Error& error);
  void record(engine::wire::Results&& results, Time now);
  void complete_at_once(const engine::wire::Lease& lease, Time now);

  const WorkerOptions& options_;
  SlotTable& table_;
  std::span<SlotRecord> slots_;
  Journal& journal_;
  Outbox& outbox_;
  ResourcePool pool_;
  Launcher launcher_;
  LeaseQueue queue_;
  std::unique_ptr<const specs::SampleTable> samples_;
  std::vector<std::string> environment_;
  std::map<engine::wire::ArrayId, std::unique_ptr<Array>> arrays_;
  std::vector<Task> tasks_;       // one a slot
  std::vector<SlotFiles> files_;  // one a slot
  std::string directory_;
  std::vector<std::size_t> free_slots_;
  std::unordered_map<pid_t, std::size_t> slot_of_;
  std::vector<const char*> pointers_;  // of the environment of the task being started
  std::string worker_;
  std::map<engine::wire::ArrayId, steps::PackWriter> packs_;  // open ones
  bool write_failed_ = false;
};

}  // namespace wflow::workers
