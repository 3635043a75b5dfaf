// SPDX-License-Identifier: Apache-2.0
// What runs, in memory that guardian and agent share: the guardian reads it when the agent has died.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/plain_types.h"
#include "engine/wire/messages.h"
#include "steps/packed_output.h"
#include "workers/execute/process_usage.h"
#include "workers/execute/slot_files.h"

namespace wflow::workers {

// One task at a time. The kernel itself stores `pid` while it makes the process (see launcher.h), so no
// instant exists in which a task runs and is not written here; the agent sets it back to 0 once the result is
// in the journal.
struct SlotRecord {
  static constexpr std::size_t kPathBytes = 4096;  // PATH_MAX: the kernel takes no longer one

  std::atomic<pid_t> pid;
  engine::wire::LeaseId lease;
  engine::wire::ArrayId array;
  engine::wire::Element element;  // the first one of this process
  std::uint64_t count;            // how many it has
  std::uint32_t attempt;
  bool bundled;   // it may report on single samples
  bool trusted;   // its marker may be what says that it is done
  bool isolated;  // when a signal ends it, its samples run again in smaller parts until one is left
  std::atomic<bool> unchecked;  // it has declared outputs, which its agent looks at when it has ended well
  std::atomic<bool> checking;   // `pid` is the process that does
  double started_unix_s;
  double started_steady_s;  // durations do not depend on a clock that may jump
  // Resident, of all its processes at a time: the most that was seen while it ran.
  std::atomic<std::uint64_t> sampled_bytes;
  std::atomic<bool> killed;    // by wflow, for `kill_reason`
  std::atomic<bool> returned;  // its element goes back to the coordinator: no result
  // SIGTERM was sent to its group, for one of the two. What its end then says: own_end.h.
  std::atomic<bool> terminated;
  // What the process did with SIGTERM just before it was sent.
  std::atomic<bool> catches_term;
  std::atomic<bool> blocks_term;
  bool own_program;  // a program of wflow: it exits with 0 only where its work is done
  engine::wire::EndReason kill_reason;
  std::uint64_t events_read;  // bytes of the events file that were forwarded
  std::uint64_t out_before, err_before;
  std::array<char, kPathBytes> marker, out, err;
  std::array<char, kPathBytes> pack;  // where what it prints goes in the end; empty: it is in `out` and `err`
  std::array<char, kPathBytes> own_place;  // where what it leaves goes in the end; empty: it is there
};
static_assert(std::atomic<pid_t>::is_always_lock_free && sizeof(std::atomic<pid_t>) == sizeof(pid_t));

void store_path(std::array<char, SlotRecord::kPathBytes>& target, const std::string& path);

// How one task ended. Agent and guardian judge alike.
struct Ending {
  bool success = false;
  engine::wire::EndReason reason = engine::wire::EndReason::exited;
  std::int32_t exit_code = 0;
  std::string detail;  // why it counts as failed, where its output does not say it
};
// `code` and `status` as waitid() gives them in si_code and si_status.
Ending judge(const SlotRecord& slot, int code, int status);

// Puts the ending of the slot's task into `results`, with the end of its output where it failed. `events` is
// the file of its reports. Gives what is to run again first: elements of a process that died of one of them,
// as parts of the slot's lease.
std::vector<engine::wire::Lease> add_ending(engine::wire::Results& results, const SlotRecord& slot,
                                            const std::string& events, const Ending& ending, Now now);

// Of a bundle's process that wflow has ended: the samples that it has reported before, and no others.
void add_reported(engine::wire::Results& results, const SlotRecord& slot, const std::string& events, Now now);

// Adds what the slot's process used, where it ran for a millisecond or failed.
void add_usage(engine::wire::Results& results, const SlotRecord& slot, const ProcessUsage& used,
               const Ending& ending, double steady_s);

// Makes its marker of success, where it has one: durably and with its lease where that may be trusted later.
// False: the disk refuses it.
bool mark_finished(const SlotRecord& slot);

// Moves what the slot's task left to its own place, if that was to be made on demand. Failing that, the task
// failed.
void settle_place(const SlotRecord& slot, SlotFiles& files, Ending& ending);

// Adds what the slot's task printed to the packed files of its step.
void pack_output(const SlotRecord& slot, SlotFiles& files, const Ending& ending, double unix_s,
                 steps::PackWriter& writer);

class SlotTable {
 public:
  explicit SlotTable(std::size_t slots);
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;
  ~SlotTable();
  std::span<SlotRecord> slots() { return slots_; }

  // The number of the batch of results that the agent is filling: what the guardian adds gets the next one.
  void set_open_sequence(std::uint64_t sequence) { shared_->open_sequence = sequence; }
  std::uint64_t open_sequence() const { return shared_->open_sequence; }

  // Steady time at which what was leased to the worker may be leased to others. Where the agent is frozen,
  // its guardian ends it.
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

}  // namespace wflow::workers
