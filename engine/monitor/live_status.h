// SPDX-License-Identifier: Apache-2.0
// The status of a running campaign, kept up to date from what the coordinator commits, so that a status query
// costs no database read. No I/O; bounded memory (status.h, metric_curves.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/monitor/metric_curves.h"
#include "engine/monitor/missing_samples.h"
#include "engine/monitor/status.h"
#include "engine/schedule/scheduler.h"
#include "engine/store/batch.h"
#include "engine/usage/step_usage.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// Estimates the speed of a step from samples of its progress: of ended elements, or of what a task reports.
class StepPace {
 public:
  void add(double time_s, std::uint64_t done);
  void clear() { samples_.clear(); }
  // Follows the last 10 s; 0: nothing was done.
  double rate_per_s() const;
  // Seconds until `total` at the rate over the last eighth of the step's time, at least 10 s and at most 5
  // minutes: a training pauses after each epoch, and the estimate must not follow every pause.
  std::optional<double> left_s(std::uint64_t total) const;

 private:
  struct Sample {
    double time_s = 0;
    std::uint64_t done = 0;
  };
  double long_window_s() const;
  double rate_over(double window_s) const;

  double began_s_ = 0;
  Sample latest_;
  std::deque<Sample> samples_;  // at least a second apart
};

class LiveStatus {
 public:
  // `recorded`: the store's status of the campaign so far.
  LiveStatus(const specs::Plan& plan, CampaignStatus recorded, std::map<std::string, StepUsage> usage = {},
             MissingSamples missing = {});

  // Takes a batch that is being committed. In order, each batch once.
  void apply(const store::Batch& batch);
  // Some of so many workers; no more than kListedWorkers are kept.
  void set_workers(std::vector<WorkerStatus> workers, std::size_t all);
  void set_allocations(wire::AllocationsAnswer allocations) { status_.allocations = std::move(allocations); }
  void set_refused(const wire::RefusedView& refused) { status_.refused = refused; }
  // Why no task of a step starts, by the step's place in the plan.
  void set_held(std::map<std::size_t, std::string> held) { held_ = std::move(held); }
  // The running tasks and their workers, to find tasks that have run for far longer than usual.
  struct RunningOn {
    std::string_view worker;
    std::span<const RunningElement> elements;
  };
  void set_running(std::span<const RunningOn> workers, double unix_s);
  // A move that campaign_state.h does not allow is a defect.
  void set_state(CampaignState state);
  void set_coordinator(std::string text) { status_.coordinator = std::move(text); }

  const CampaignStatus& update(const Scheduler& scheduler, double steady_s, double unix_s);

 private:
  void add(const RecordFailure& failure);
  void add(const RecordCause& cause);
  void add(const wire::TaskEvent& event);
  void add(const store::HistoryRow& row);
  void add_artifact(const std::string& step, const wire::Artifact& artifact);
  void count(const Scheduler& scheduler);
  void estimate(std::size_t step, double steady_s);

  const specs::Plan& plan_;
  CampaignStatus status_;
  std::map<std::string, StepUsage> usage_;  // by step
  std::set<std::size_t> usage_changed_;     // steps, since the last update()
  MissingSamples missing_;
  bool missing_changed_ = true;  // since the last update()
  MetricCurves metrics_;
  bool metrics_changed_ = false;  // since the last update()
  std::map<std::size_t, std::string> held_;
  double earlier_s_ = 0;  // time under earlier coordinators
  double began_s_ = 0;    // Unix time of this one's first update()
  std::uint64_t last_history_ = 0;
  std::vector<StepPace> paces_;  // of each step
};

}  // namespace wflow::engine
