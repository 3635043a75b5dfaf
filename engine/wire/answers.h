// SPDX-License-Identifier: Apache-2.0
// Answers to the queries in requests.h, as typed values; codec.cc converts them to bytes. Every list
// has a bound (engine/query/queries.h): longer ones go out page by page.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "engine/schedule/states.h"
#include "engine/schedule/types.h"
#include "engine/wire/campaign_state.h"
#include "engine/wire/requests.h"
#include "engine/wire/task_event.h"

namespace wflow::engine::wire {

// No answer is larger as a message; one that would be is a Refusal.
inline constexpr std::size_t kMaxAnswerBytes = 4 << 20;

struct Refusal {
  ExitCode code = ExitCode::usage;
  std::string sentence;
};

struct Done {
  std::uint64_t count = 0;  // number of tasks affected
  std::uint64_t running =
      0;  // still running at the time of the answer; included in `count` if they are being killed
};

// ---- status

struct FailureView {
  std::uint64_t number = 0;  // grows with every failure of the campaign
  std::string task;          // "simulate/12"
  std::string step;
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::uint32_t attempt = 0;
  std::string reason;  // "exit code 3", "signal 9 (Killed)", "time limit"
  std::string worker;
  double time_s = 0;
  double duration_s = 0;
  bool final = false;
  std::string detail;
};

struct MetricPoint {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  double value = 0;  // may be infinite or not a number
};

// The values that one task has reported under one name, thinned if there are many.
struct MetricCurve {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::string task;
  std::string name;
  std::vector<MetricPoint> points;  // in order of step; the last one is exact
};

// A distribution over the processes of a step, for users.
struct Spread {
  double median = 0, p95 = 0, most = 0, sum = 0;
};

// Resources used by the executions of a step; empty if none took a millisecond or failed.
struct UsageView {
  std::uint64_t executions = 0;
  Spread duration_s, cpu_s, peak_bytes, read_bytes, written_bytes;
};

struct StepStatus {
  std::string name;
  std::string kind;
  std::uint64_t arrays = 1;
  std::uint64_t elements = 0;
  std::array<std::uint64_t, kElementStates> counts{};
  double mean_s = 0;  // over done elements
  double deviation_s = 0;
  double rate_per_s = 0;         // over the last seconds; 0 when nothing runs
  std::optional<double> left_s;  // estimated
  // A single long task's own progress, if it reports one.
  std::uint64_t progress_done = 0;
  std::uint64_t progress_total = 0;
  std::string progress_unit;
  UsageView usage;
  // For a conversion: samples that are not in its data set, by reason; the most frequent first.
  std::vector<MissingReason> missing;
  std::uint64_t samples = 0;  // for the blocks of a conversion: samples of its source
  std::string held;           // why none of its tasks starts: max_failures; empty: it is not paused

  std::uint64_t missing_samples() const;
  std::uint64_t count(ElementState state) const { return counts[static_cast<std::size_t>(state)]; }
  std::uint64_t ended() const;
  std::uint64_t failed() const { return count(ElementState::failed) + count(ElementState::hard_failed); }
};

struct WorkerStatus {
  std::string id, host;
  std::int32_t cores = 0;
  std::uint64_t running = 0;
  std::uint64_t leased = 0;
  double silent_s = 0;
  bool draining = false;
  std::uint64_t ended = 0;  // elements that have ended on it since this coordinator knows it: for rates
};

struct HistoryView {
  std::uint64_t number = 0;  // grows with every row of the campaign
  double time_s = 0;
  std::string kind, text;
};

struct ArtifactView {
  std::string step, kind, path;
};

// A campaign that comes after this one.
struct FollowupView {
  std::string kind;  // submitted, restart, iteration
  std::int32_t iteration = 0;
  std::string spec, directory;
  FollowupState state = FollowupState::pending;
  std::string handed_to;  // the campaign whose list has it now
  std::uint64_t elements = 0, ended = 0, failed = 0;
  // True if this campaign's own run has not finished it yet.
  bool left() const;
};

// A batch allocation of the campaign.
struct AllocationView {
  std::string token, id;  // its name and its number at the scheduler; no number until it has given one
  std::string pool, scheduler;
  std::string state;  // intended, queued, running, ended
  std::int32_t nodes = 1;
  double walltime_s = 0;
  double created_s = 0, started_s = 0, ends_s = 0, ended_s = 0;  // Unix time; 0: not yet, or not known
  std::int32_t workers = 0;
  bool leaving = false;      // it is being given back
  std::string reason;        // why it waits or has ended
  std::string never_clears;  // a plain sentence if it will never start
  std::vector<std::string> node_names;
};

struct PoolView {
  std::string name, scheduler;
  std::int32_t nodes = 1;  // per allocation
  std::int32_t slots = 0;  // per node; 0: not known yet
  std::int32_t min = 0, max = 1;
  double walltime_s = 0;
  double used_node_h = 0, left_node_h = 0;
  std::optional<double> ends_s;  // Unix time: the forecast
  std::int32_t more = 0;         // allocations that the forecast needs beyond those that are there
  std::string gave_up;           // why it submits no more
};

struct AllocationsAnswer {
  std::vector<AllocationView> allocations;  // the newest ones, in the order in which they were wanted
  std::uint64_t allocations_total = 0;
  std::vector<PoolView> pools;  // empty where no coordinator runs
  std::vector<std::string> excluded_nodes;
};

// A task that has run for far longer than the others of its step.
struct SlowView {
  std::string task, worker;
  double running_s = 0;
  double usual_s = 0;  // 95 % of the step's executions took no longer
};

// Counts of the coordinator's refusals since it began.
struct RefusedView {
  std::uint64_t connections = 0;  // that ended before they showed a key of the campaign
  std::uint64_t other_keys = 0;   // how many of these had a key of another campaign
  std::uint64_t messages = 0;     // that were no message, or claimed what can't be
  std::uint64_t all() const { return connections + messages; }
  std::string sentence() const;  // "refused: 3 connections without the campaign's keys, ..."
};

// The state of a campaign at one moment: behind `wflow status`, the progress display and `--json`. The lists
// have the newest entries; `total` is the number of all entries.
struct StatusAnswer {
  std::string name, directory;
  CampaignState state = CampaignState::running;
  std::string coordinator;  // "host (pid 12)" while one runs
  double started_s = 0;     // Unix time
  double elapsed_s = 0;     // with a coordinator: what lies between two of them does not count
  double time_s = 0;        // Unix time of this picture; of a campaign that has ended: when it did
  std::vector<StepStatus> steps;
  std::vector<WorkerStatus> workers;  // that are connected
  std::uint64_t workers_total = 0;
  std::vector<FailureView> failures;  // newest last; final ones
  std::uint64_t last_failure = 0;     // the greatest number of a failure, also of those that are not listed
  std::vector<MetricCurve> metrics;
  std::vector<ArtifactView> artifacts;
  std::uint64_t artifacts_total = 0;
  std::vector<HistoryView> history;     // newest last
  std::vector<FollowupView> followups;  // in order
  std::string iterations;               // how the iterations of a study with iterate: ended
  AllocationsAnswer allocations;        // that have not ended
  RefusedView refused;
  std::vector<SlowView> slow;  // the longest first
  std::uint64_t slow_total = 0;

  std::uint64_t elements() const;
  std::uint64_t ended() const;
  std::uint64_t failed() const;
  std::uint64_t cancelled() const;
};

// ---- single tasks

struct TaskRun {  // neighbours in the same state
  specs::ArrayId array = 0;
  specs::Element first = 0, last = 0;
  ElementState state = ElementState::blocked;
};

struct TaskRecord {  // the last execution of an element that did not succeed at least once
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::uint32_t executions = 0;  // that did not succeed
  std::int32_t exit_code = 0;
  std::string reason;
  std::string worker;
  double started_s = 0;
  double duration_s = 0;
  std::string message;  // the last line of what it printed, cut to kListedMessage bytes
};
inline constexpr std::size_t kListedMessage = 200;

struct TaskLease {
  specs::ArrayId array = 0;
  specs::Element first = 0, last = 0;
  std::string worker;
};

struct RunningTask {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  double started_s = 0;
};

// A done element whose output a conversion could not use.
struct MissingTask {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::string reason;
};

// Complete for the elements from the request's `from` up to, but without, `next`.
struct TasksAnswer {
  std::vector<TaskRun> runs;
  std::vector<TaskRecord> records;
  std::vector<TaskLease> leases;
  std::vector<RunningTask> running;
  std::vector<MissingTask> missing;
  std::optional<TaskPlace> next;  // the next page begins there
};

struct ParentView {  // the elements for which an element waits, along one edge
  std::string array;
  std::uint64_t needed = 0;
  std::array<std::uint64_t, kElementStates> counts{};  // counts the needed elements by state
  std::vector<std::string> open, ended_badly;          // some, by name
};

struct ExecutionView {
  std::uint32_t attempt = 0;
  std::string reason, worker, host;
  double started_s = 0, duration_s = 0;
  bool final = false;
  std::string detail;
  double worker_ended_s = 0;  // 0: not that one knows
  std::string worker_reason;
};

struct UsedView {  // an execution that has ended, well or not
  TaskUsage usage;
  std::string worker;
};

struct ExplainAnswer {
  std::string task, step;
  ElementState state = ElementState::blocked;
  bool paused = false;
  std::string worker;                     // that has it; empty: none
  std::optional<double> running_since_s;  // Unix time
  std::vector<ParentView> parents;
  std::uint64_t parents_total = 0;
  std::vector<ExecutionView> executions;  // that did not succeed, newest last
  std::uint64_t executions_total = 0;
  std::vector<UsedView> used;        // executions with a record of it, newest last
  std::vector<std::string> missing;  // a sentence for each conversion that could not use its output
  std::string
      waits_for;  // where it could run: what is missing, "allocation 1234, pending for 12 min: Priority"
};

enum class WorkerViewState : std::uint8_t { working, draining, ended, unknown };

struct WorkerView {
  std::string id, host, group;
  std::int64_t pid = 0;
  std::int32_t cores = 0, gpus = 0;
  double joined_s = 0;
  double ended_s = 0;  // 0: not that one knows
  std::string reason;
  std::uint64_t failures = 0;  // executions that did not succeed on it
  // unknown: its coordinator was killed and none has asked for it since
  WorkerViewState state = WorkerViewState::unknown;
  std::uint64_t leased = 0, running = 0;  // while it works
};

struct WorkersAnswer {
  std::vector<WorkerView> workers;  // in the order in which they joined
  std::optional<std::uint64_t> next;
};

struct UsageAnswer {
  std::vector<UsedView> used;  // by their first element; a bundle that begins before the range comes, too
  std::optional<specs::Element> next;  // the next page begins here
};

// The distributions of a step: StepUsage::bytes() (engine/usage/step_usage.h).
struct StepSketches {
  std::string step, body;
};

// Executions of a step that did not succeed, by reason ("exited", "timed_out", "worker_lost"), and how long
// they ran together.
struct LostTime {
  std::string step, reason;
  std::uint64_t executions = 0;
  double seconds = 0;
};

struct UsageSummary {
  std::vector<StepSketches> steps;
  std::vector<LostTime> lost;
};

// A task that runs now.
struct RunningView {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::string task, worker;
  double started_s = 0;            // Unix time
  std::uint64_t memory_bytes = 0;  // the most so far; 0: not known yet
};

// The last checkpoint that a task has reported.
struct CheckpointView {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  std::uint64_t epoch = 0, step = 0;
  double time_s = 0;  // Unix time
  std::string path;
};

struct WatchAnswer {
  StatusAnswer status;
  std::vector<RunningView> running;  // those that began first
  std::uint64_t running_total = 0;
  std::vector<CheckpointView> checkpoints;  // in order of task
};

struct Answer {
  std::variant<Refusal, Done, StatusAnswer, TasksAnswer, ExplainAnswer, WorkersAnswer, AllocationsAnswer,
               UsageAnswer, WatchAnswer, UsageSummary>
      body;
};

inline Answer refusal(std::string sentence, ExitCode code = ExitCode::usage) {
  return {Refusal{code, std::move(sentence)}};
}
inline Answer done_answer(std::uint64_t count = 0, std::uint64_t running = 0) {
  return {Done{count, running}};
}

}  // namespace wflow::engine::wire
