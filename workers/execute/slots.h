// SPDX-License-Identifier: Apache-2.0
// The running tasks and their arrays, as the parts of the agent share them. State that the guardian also
// needs is in the slot's record (slot_table.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/wire/messages.h"
#include "specs/plan/template.h"
#include "specs/samples/samples.h"
#include "steps/step.h"
#include "workers/execute/event_tail.h"
#include "workers/execute/processes.h"
#include "workers/execute/resources.h"
#include "workers/execute/slot_files.h"
#include "workers/execute/slot_table.h"

namespace wflow::workers {

struct SlotTask {
  engine::wire::Lease lease;  // names the elements of this process only
  Share share;
  EventTail events;
  bool interrupted = false;  // received SIGUSR1, to end at a checkpoint
  bool dropped = false;      // killed at the fence: no result, unless it had ended before
  bool printed = false;      // has output for the pack
  // Usage of the task's process, also while another process checks its outputs.
  ProcessUsage used;
  double ended_steady_s = 0;
  // State at the last check of stall_timeout, and the time for which the task had done nothing.
  std::uint64_t printed_bytes = ~std::uint64_t{0};  // all bits set: not checked yet
  double cpu_s = 0;
  double silent_s = 0;
  std::vector<pid_t> below;  // its descendants when it was sent SIGTERM

  steps::Execution execution() const;
};

struct Slots {
  Slots(std::span<SlotRecord> given, const std::filesystem::path& worker_directory);

  std::string directory;  // the worker's own
  std::span<SlotRecord> records;
  std::vector<SlotTask> tasks;
  std::vector<SlotFiles> files;
};

// A task array that this worker knows, with the data that its tasks share.
struct TaskArray {
  specs::TaskTemplate task_template;
  std::vector<std::string> environment;
  std::string pack;                         // folder of its packed output
  std::unique_ptr<const steps::Step> step;  // made for the first element; refers to task_template
};

class TaskArrays {
 public:
  explicit TaskArrays(int cores);

  void set_samples(std::unique_ptr<const specs::SampleTable> samples);
  const specs::SampleTable* samples() const { return samples_.get(); }
  void add(specs::TaskTemplate task_template);
  const TaskArray& at(specs::ArrayId id) const { return *arrays_.at(id); }
  // Returns the array's step, with its setup on disk. Throws Error if that is not possible.
  const steps::Step& step_of(specs::ArrayId id);

 private:
  int cores_;
  std::vector<std::string> environment_;
  std::unique_ptr<const specs::SampleTable> samples_;
  std::map<specs::ArrayId, std::unique_ptr<TaskArray>> arrays_;
};

}  // namespace wflow::workers
