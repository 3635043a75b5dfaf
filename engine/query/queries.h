// SPDX-License-Identifier: Apache-2.0
// Questions about a campaign that only read, answered in the same way by a coordinator and from the record of
// a campaign at rest: from a scheduler's states and the store.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "engine/monitor/status.h"
#include "engine/query/selection.h"
#include "engine/schedule/scheduler.h"
#include "engine/store/store.h"
#include "engine/wire/answers.h"
#include "engine/wire/messages.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// What workers said last: with the names of the workers.
using RunningElements = std::vector<std::pair<WorkerId, wire::RunningElement>>;

inline constexpr std::size_t kPageItems = 5000;      // of each list at most
inline constexpr std::size_t kPageVisits = 200'000;  // runs and leases looked at

wire::TasksAnswer task_page(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
                            const RunningElements& running, const wire::TasksRequest& request);

// The parts of arrays that the request means: failures that can run again, by exit code where that is asked
// for. Error{usage} for a step that the study does not have.
std::vector<std::pair<ArrayId, Range>> parts_to_retry(const specs::Plan& plan, const Scheduler& scheduler,
                                                      store::Store& store, const wire::Selection& selection);

// Of a worker that no coordinator has: ended, or unknown.
wire::WorkerView view_of(const store::WorkerRecord& row);

// What executions used, by step, and what failures took. Reads every failure.
wire::UsageSummary usage_summary(store::Store& store);

// Leaves what the request does not ask for out of its answer.
void cut_to(wire::WatchAnswer& answer, const wire::WatchRequest& request);

// May run beside other uses of the store (Store::snapshot()). Never throws.
wire::Answer answer_snapshot(store::Store& store, const std::string& path);

class Queries {
 public:
  // Gives what `wflow status` shows; called for a StatusRequest or WatchRequest only.
  using StatusSource = std::function<CampaignStatus()>;
  // `running`: what workers said last; empty at rest.
  Queries(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
          const RunningElements& running, StatusSource status);

  // Never throws: whatever goes wrong is this request's Refusal alone. At most kMaxAnswerBytes. A command is
  // refused: it is the coordinator's.
  wire::Answer answer(const wire::Request& request);

 private:
  wire::Answer on(const wire::StatusRequest& request);
  wire::Answer on(const wire::WatchRequest& request);
  wire::Answer on(const wire::TasksRequest& request);
  wire::Answer on(const wire::ExplainRequest& request);
  wire::Answer on(const wire::UsageRequest& request);
  wire::Answer on(const wire::UsageSummaryRequest& request);
  wire::Answer on(const wire::WorkersRequest& request);
  wire::Answer on(const wire::RetryableRequest& request);
  wire::Answer on(const wire::SnapshotRequest& request);
  void add_usage(ArrayId array, Element element, wire::ExplainAnswer& answer);
  void add_missing(ArrayId array, Element element, wire::ExplainAnswer& answer);
  void add_parents(ArrayId array, Element element, wire::ExplainAnswer& answer) const;
  wire::ParentView parent(const specs::Edge& edge, Element element) const;
  void add_executions(ArrayId array, Element element, wire::ExplainAnswer& answer);

  const specs::Plan& plan_;
  const Scheduler& scheduler_;
  store::Store& store_;
  const RunningElements& running_;
  StatusSource status_;
};

}  // namespace wflow::engine
