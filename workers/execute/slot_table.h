// SPDX-License-Identifier: Apache-2.0
// The table of running tasks, in memory that guardian and agent share: the guardian reads it when the agent
// has died. And the judging of a task's end, which both do alike.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain_types.h"
#include "engine/wire/messages.h"
#include "steps/packed_output.h"
#include "workers/execute/processes.h"
#include "workers/execute/slot_files.h"

namespace wflow::workers {

// A slot holds one task at a time. The kernel itself stores `pid` while it makes the process (launcher.h), so
// there is no instant in which a task runs and is not in the table. The agent resets `pid` to 0 once the
// result is in the journal.
struct SlotRecord {
  static constexpr std::size_t kPathBytes = 4096;  // PATH_MAX: the kernel takes no longer one

  std::atomic<pid_t> pid;
  engine::wire::LeaseId lease;
  engine::wire::ArrayId array;
  engine::wire::Element element;  // first element of this process
  std::uint64_t count;            // number of its elements
  std::uint32_t attempt;
  bool bundled;   // the process may report on single samples
  bool trusted;   // a later worker may take the task for done because of its marker
  bool isolated;  // if a signal ends the process, its samples run again in smaller parts until one is left
  std::atomic<bool> unchecked;  // the task has declared outputs, which the agent checks after its success
  std::atomic<bool> checking;   // `pid` is the process that checks them
  double started_unix_s;
  double started_steady_s;  // for durations, because the wall clock may jump
  // The sampled peak of the resident memory of all its processes together.
  std::atomic<std::uint64_t> sampled_bytes;
  std::atomic<bool> killed;    // by wflow, for `kill_reason`
  std::atomic<bool> returned;  // its element goes back to the coordinator: no result
  // SIGTERM was sent to its group, for one of these two reasons. is_own_end() then judges its end.
  std::atomic<bool> terminated;
  // The disposition of SIGTERM in the process just before the signal was sent.
  std::atomic<bool> catches_term;
  std::atomic<bool> blocks_term;
  bool own_program;  // a program of wflow, which exits with 0 only if its work is done
  engine::wire::EndReason kill_reason;
  std::uint64_t events_read;  // number of bytes of the events file that were forwarded
  std::uint64_t out_before, err_before;
  std::array<char, kPathBytes> marker, out, err;
  std::array<char, kPathBytes> pack;       // final folder of its packed output; empty: `out` and `err`
  std::array<char, kPathBytes> own_place;  // final directory of its files; empty: they are already there
};
static_assert(std::atomic<pid_t>::is_always_lock_free && sizeof(std::atomic<pid_t>) == sizeof(pid_t));

void store_path(std::array<char, SlotRecord::kPathBytes>& target, const std::string& path);

// How a task ended.
struct Ending {
  bool success = false;
  engine::wire::EndReason reason = engine::wire::EndReason::exited;
  std::int32_t exit_code = 0;
  std::string detail;  // why it counts as failed, if its output does not tell
};
// `code` and `status`: si_code and si_status of waitid().
Ending judge(const SlotRecord& slot, int code, int status);

// Adds the ending of the slot's task to `results`, with the end of its output if it failed. `events` is
// the file of its reports. Returns the elements that run again, as parts of the slot's lease: those of a
// process that died of one of its elements.
std::vector<engine::wire::Lease> add_ending(engine::wire::Results& results, const SlotRecord& slot,
                                            const std::string& events, const Ending& ending, Now now);

// Adds only the samples that a bundle's process had reported before wflow ended it.
void add_reported(engine::wire::Results& results, const SlotRecord& slot, const std::string& events, Now now);

// Adds the usage of the slot's process, if it ran for a millisecond or failed.
void add_usage(engine::wire::Results& results, const SlotRecord& slot, const ProcessUsage& used,
               const Ending& ending, double steady_s);

// Makes the task's marker of success, if it has one: durably and with the lease if a later worker may trust
// it. Returns false if the disk refuses it.
bool mark_finished(const SlotRecord& slot);

// Moves the files of the slot's task to its own directory, if that is made on demand. If the move fails, the
// task has failed.
void settle_place(const SlotRecord& slot, SlotFiles& files, Ending& ending);

// Adds the output of the slot's task to the packed files of its step.
void pack_output(const SlotRecord& slot, SlotFiles& files, const Ending& ending, double unix_s,
                 steps::PackWriter& writer);

class SlotTable {
 public:
  explicit SlotTable(std::size_t slots);
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;
  ~SlotTable();
  std::span<SlotRecord> slots() { return slots_; }

  // The number of the agent's open batch of results. The guardian adds results under the next number.
  void set_open_sequence(std::uint64_t sequence) { shared_->open_sequence = sequence; }
  std::uint64_t open_sequence() const { return shared_->open_sequence; }

  // Steady time at which the coordinator may lease the worker's tasks to others. The guardian kills an agent
  // that is frozen past it.
  void set_fence(double steady_s) { shared_->fence_s = steady_s; }
  double fence_s() const { return shared_->fence_s; }
  bool runs_anything() const;

 private:
  struct Shared {
    std::atomic<std::uint64_t> open_sequence = 0;
    std::atomic<double> fence_s = std::numeric_limits<double>::infinity();
  };
  static_assert(std::atomic<double>::is_always_lock_free);

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  Shared* shared_ = nullptr;
  std::span<SlotRecord> slots_;
};

// True if the output of a failed task shows that its launcher (srun, mpirun) could not start its processes.
// The evidence is a line that begins with the launcher's own message, because srun and mpirun have no exit
// code for this. Messages about a program that does not exist do not count: they are a mistake in the study.
bool is_launch_failure(std::string_view output);

// If wflow-train or wflow-convert has printed an error, returns the output without the warnings before it and
// without mpirun's message on the exit of ranks after it. Any other output stays as it is.
std::string without_warnings(std::string_view output);

}  // namespace wflow::workers
