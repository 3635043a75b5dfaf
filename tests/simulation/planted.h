// SPDX-License-Identifier: Apache-2.0
// Planted bugs show that the invariants can fail. Each one spoils what passes the simulation's edges (a
// message, a commit, an answer, a call of the disk); the production code knows nothing of them. README.md has
// the table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/coordinate/machine.h"
#include "engine/store/batch.h"
#include "engine/wire/messages.h"

namespace wflow::simulation {

enum class Planted : std::uint8_t {
  none,
  skip_journals,
  lease_before_fence,
  forget_leases_at_hand_over,
  double_cores,
  count_attempts_twice,
  leave_nothing_out,
  fill_the_disk,
  forget_memory,
  failure_is_success,
  acknowledge_before_commit,
  commit_without_sync,
  lease_before_row,
  share_the_lock,
  take_a_live_lock,
  ignore_a_lost_lock,
  signal_before_end,
  goodbye_without_sync,
  watch_another_host,
  end_with_guardian,
  answer_at_once,
  finish_before_commit,
  drop_answers,
  wake_at_once,
  ignore_the_scheduler,
  cancel_the_skipped,
  forget_what_ran,
  throw_at_odd_message,
};

struct PlantedBug {
  Planted bug;
  std::string_view name;
  std::string_view invariant;  // that must find it
  std::string_view text;
};

inline constexpr std::array kPlantedBugs = {
    PlantedBug{Planted::skip_journals, "skip_journals", "success runs once",
               "the journal of a lost worker is read as if it were empty"},
    PlantedBug{Planted::lease_before_fence, "lease_before_fence", "one execution at once",
               "tasks of a silent worker are leased again before its fence"},
    PlantedBug{Planted::forget_leases_at_hand_over, "forget_leases_at_hand_over", "one execution at once",
               "a worker comes back from an earlier coordinator, and the leases that it holds are forgotten"},
    PlantedBug{Planted::double_cores, "double_cores", "slots", "each worker counts with twice its cores"},
    PlantedBug{Planted::count_attempts_twice, "count_attempts_twice", "attempts",
               "a lease has the number of the next attempt"},
    PlantedBug{Planted::leave_nothing_out, "leave_nothing_out", "left out",
               "the lease of a conversion does not name the samples that have failed"},
    PlantedBug{Planted::fill_the_disk, "fill_the_disk", "disk", "`max_disk` blocks nothing"},
    PlantedBug{Planted::forget_memory, "forget_memory", "memory",
               "a task that was killed for memory gets no more of it"},
    PlantedBug{Planted::failure_is_success, "failure_is_success", "true results",
               "a worker reports exit code 1 as success"},
    PlantedBug{Planted::acknowledge_before_commit, "acknowledge_before_commit", "acknowledged results last",
               "results are acknowledged before their commit"},
    PlantedBug{Planted::commit_without_sync, "commit_without_sync", "acknowledged results last",
               "the coordinator's disk confirms fsync and does nothing"},
    PlantedBug{Planted::lease_before_row, "lease_before_row", "durable workers",
               "the rows of workers that join are not written"},
    PlantedBug{Planted::share_the_lock, "share_the_lock", "one coordinator",
               "the campaign's lock and its database can be locked twice"},
    PlantedBug{Planted::take_a_live_lock, "take_a_live_lock", "one coordinator",
               "a coordinator takes the campaign's lock without a wait for the holder's heartbeat"},
    PlantedBug{Planted::ignore_a_lost_lock, "ignore_a_lost_lock", "one coordinator",
               "a coordinator that was frozen does not look whether another one has the campaign"},
    PlantedBug{Planted::signal_before_end, "signal_before_end", "own ends are kept",
               "a worker that has decided to end a task ignores that it ended by itself"},
    PlantedBug{Planted::goodbye_without_sync, "goodbye_without_sync", "visible at a Goodbye",
               "a worker says Goodbye without an fsync of its journal"},
    PlantedBug{Planted::watch_another_host, "watch_another_host", "own processes only",
               "the coordinator takes another host's processes for its own"},
    PlantedBug{Planted::end_with_guardian, "end_with_guardian", "dead workers' journals",
               "an agent counts as ended when its guardian has ended"},
    PlantedBug{Planted::answer_at_once, "answer_at_once", "durable answers",
               "a question is answered while a commit is under way"},
    PlantedBug{Planted::finish_before_commit, "finish_before_commit", "one commit at a time",
               "a commit is reported as finished before it is written"},
    PlantedBug{Planted::drop_answers, "drop_answers", "answers", "no question is answered"},
    PlantedBug{Planted::wake_at_once, "wake_at_once", "bounded",
               "the coordinator always wants to wake at once"},
    PlantedBug{Planted::ignore_the_scheduler, "ignore_the_scheduler", "leased again at once",
               "the lists of jobs from the batch scheduler are dropped"},
    PlantedBug{Planted::cancel_the_skipped, "cancel_the_skipped", "final states",
               "skipped tasks are recorded as cancelled"},
    PlantedBug{Planted::forget_what_ran, "forget_what_ran", "ends",
               "what a guardian recorded about the tasks that its agent ran is dropped"},
    PlantedBug{Planted::throw_at_odd_message, "throw_at_odd_message", "no exceptions",
               "results with an invalid sequence number throw"},
};
static_assert(kPlantedBugs.size() == static_cast<std::size_t>(Planted::throw_at_odd_message));

// Null: there is none of this name.
const PlantedBug* find_planted(std::string_view name);
const PlantedBug* find_planted(Planted bug);
// The table of README.md.
std::string planted_table();

// ---- what passes the coordinator's edge

void spoil(Planted bug, engine::MachineOptions& options, std::vector<engine::ArraySpec>& arrays,
           std::vector<engine::KnownWorker>& known);
void spoil_received(Planted bug, engine::wire::Message& message);
// `arrays`: as the study has them; `timing`: of an unspoiled coordinator.
void spoil_sent(Planted bug, engine::wire::Message& message, const std::vector<engine::ArraySpec>& arrays,
                const engine::Timing& timing);
void spoil(Planted bug, engine::store::Batch& batch);
// ---- what passes the agent's edge
void spoil(Planted bug, engine::wire::Results& results);

}  // namespace wflow::simulation
