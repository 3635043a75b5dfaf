// SPDX-License-Identifier: Apache-2.0
// Requests of users to a running coordinator, as typed values; codec.cc converts them to bytes. Read-only
// queries have the same answers from the record of a campaign at rest (engine/query/).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::engine::wire {

// Elements first..last of an array, both included.
struct Part {
  specs::ArrayId array = 0;
  specs::Element first = 0;
  specs::Element last = 0;
};

// Which tasks are meant.
struct Selection {
  std::string step;  // in the study or plan; empty: all
  bool ranged = false;
  specs::Element first = 0, last = 0;  // with `ranged`: only these elements
  bool by_exit_code = false;
  std::int32_t exit_code = 0;  // with `by_exit_code`: of the last execution
  // With `chosen`: these instead, where the asking side has chosen; what is above does not count.
  bool chosen = false;
  std::vector<Part> parts;
};

// ---- questions that read only

struct StatusRequest {};  // StatusAnswer

// A task of the campaign, or the place in a list of tasks where a page begins.
struct TaskPlace {
  specs::ArrayId array = 0;
  specs::Element element = 0;
};

// A page of the elements [first, last] of the arrays up to `last_array`, from `from` on, that are in one of
// the states: TasksAnswer.
struct TasksRequest {
  TaskPlace from;
  specs::ArrayId last_array = 0;
  specs::Element first = 0, last = 0;
  std::uint32_t states = 0;  // bits: 1 << ElementState
  bool missing = false;      // instead: those that are done, but whose output a conversion could not use
};

struct ExplainRequest {  // ExplainAnswer
  TaskPlace task;
};

// Resources used by executions of the elements [first, last] of an array: UsageAnswer.
struct UsageRequest {
  specs::ArrayId array = 0;
  specs::Element first = 0, last = 0;
  std::uint32_t limit = 0;  // records of a page; 0: as many as fit
};

struct WorkersRequest {    // WorkersAnswer
  std::uint64_t from = 0;  // leave out so many: those that joined first
};

struct RetryableRequest {  // Done: how many tasks a RetryRequest would run again
  Selection tasks;
};

struct SnapshotRequest {  // Done
  std::string path;       // absolute; must not exist
};

struct AllocationsRequest {};  // AllocationsAnswer

// The content of a dashboard, several times a second: the parts of the status that it shows: WatchAnswer.
struct WatchRequest {
  std::uint32_t points = 0;   // for all metrics together; 0: no metrics and no checkpoints
  std::uint32_t workers = 0;  // at most so many
  std::uint32_t running = 0;  // at most so many running tasks
};

// Resources used by the executions of every step, as distributions, and time lost in failures: UsageSummary.
struct UsageSummaryRequest {};

// ---- commands: answered by done_answer() or refusal()

struct DrainRequest {};
struct StopRequest {};
struct PauseRequest {
  bool pause = true;
};
struct RetryRequest {
  Selection tasks;
};
struct CancelRequest {
  Selection tasks;
  bool kill = false;
};

enum class AllocationsVerb : std::uint8_t { add, cancel, drain };
struct AllocationsCommand {
  AllocationsVerb verb = AllocationsVerb::add;
  std::string
      name;  // add: a pool, empty if there is only one; else a token or the scheduler's id, empty: all
  std::uint32_t count = 1;  // add: allocations
};

using Request =
    std::variant<StatusRequest, TasksRequest, ExplainRequest, WorkersRequest, RetryableRequest,
                 SnapshotRequest, DrainRequest, StopRequest, PauseRequest, RetryRequest, CancelRequest,
                 AllocationsRequest, AllocationsCommand, UsageRequest, WatchRequest, UsageSummaryRequest>;

struct Query {
  Request request;
};

}  // namespace wflow::engine::wire
