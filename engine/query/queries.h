// SPDX-License-Identifier: Apache-2.0
// Read-only queries of a campaign. A coordinator and a campaign at rest answer them in the same way: from a
// scheduler's states and the store.
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

// The workers' last reports of running elements, with the names of the workers.
using RunningElements = std::vector<std::pair<WorkerId, wire::RunningElement>>;

inline constexpr std::size_t kPageItems = 5000;      // at most, in each list
inline constexpr std::size_t kPageVisits = 200'000;  // runs and leases visited

// A page of the list of tasks (wflow tasks): runs of equal state, and the records of single elements in them.
// Each page reads and holds a bounded number of records, for any campaign.
wire::TasksAnswer task_page(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
                            const RunningElements& running, const wire::TasksRequest& request);

// The parts of arrays that the request names: failures that can run again, selected by exit code if it gives
// one. Error{usage} for a step that the study does not have.
std::vector<std::pair<ArrayId, Range>> parts_to_retry(const specs::Plan& plan, const Scheduler& scheduler,
                                                      store::Store& store, const wire::Selection& selection);

// The view of a worker without a coordinator: ended, or unknown.
wire::WorkerView view_of(const store::WorkerRecord& row);

// Resources that executions used, by step, and time lost in failures. Reads every failure.
wire::UsageSummary usage_summary(store::Store& store);

// Removes the parts that the request does not ask for from its answer.
void cut_to(wire::WatchAnswer& answer, const wire::WatchRequest& request);

// May run beside other uses of the store (Store::snapshot()). Never throws.
wire::Answer answer_snapshot(store::Store& store, const std::string& path);

class Queries {
 public:
  // Returns the content of `wflow status`; called for a StatusRequest or WatchRequest only.
  using StatusSource = std::function<CampaignStatus()>;
  // `running`: the workers' last reports; empty at rest.
  Queries(const specs::Plan& plan, const Scheduler& scheduler, store::Store& store,
          const RunningElements& running, StatusSource status);

  // Never throws: an error becomes the Refusal of this request. At most kMaxAnswerBytes. Refuses commands,
  // which only a coordinator carries out.
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
