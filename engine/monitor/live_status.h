// SPDX-License-Identifier: Apache-2.0
// The status of a running campaign, kept up to date from what passes through the coordinator, so that a
// status query costs no database read.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/monitor/status.h"
#include "engine/schedule/scheduler.h"
#include "engine/store/store.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

class LiveStatus {
 public:
  // `recorded`: what the store knows of the campaign so far.
  LiveStatus(const specs::Plan& plan, CampaignStatus recorded);

  void failure(const RecordFailure& failure);
  // These run again: they are no failures any more.
  void reopened(ArrayId array, Range range);
  void event(const wire::TaskEvent& event);
  // The text of a task's note, where the event is one.
  static std::optional<std::string> note_of(const wire::TaskEvent& event);
  void history(const store::HistoryRow& row);
  // False when it has been heard before.
  bool submitted(const store::Followup& followup);
  void set_workers(std::vector<WorkerStatus> workers) { status_.workers = std::move(workers); }
  void set_state(std::string state) { status_.state = std::move(state); }
  void set_coordinator(std::string text) { status_.coordinator = std::move(text); }

  const CampaignStatus& update(const Scheduler& scheduler, double steady_s, double unix_s);

  std::string task_name(ArrayId array, Element element) const;

 private:
  void count(const Scheduler& scheduler);
  void estimate(std::size_t step, double steady_s);
  void metric(const std::string& name, std::uint64_t epoch, std::uint64_t step, double value);

  struct Sample {
    double time_s;
    std::uint64_t done;
  };
  const specs::Plan& plan_;
  CampaignStatus status_;
  std::set<std::string> submitted_;  // sources
  std::vector<std::deque<Sample>>
      windows_;  // a step: ended elements (or a task's own progress) over the last seconds
};

}  // namespace wflow::engine
