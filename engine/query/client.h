// SPDX-License-Identifier: Apache-2.0
// Queries one campaign, for every command: its coordinator if one lives, else its record. The only place that
// waits for a coordinator that begins, ends or is busy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "engine/monitor/overview.h"
#include "engine/monitor/status.h"
#include "engine/wire/answers.h"
#include "engine/wire/requests.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

// How long a query waits for a coordinator that begins or ends, and for one that is busy.
struct Waiting {
  double change_s = 10;
  double answer_s = 20;
};

// Throws Error: as store::require_record(); busy if a coordinator does not answer; the refusals of the
// coordinator or the record. Keeps the data that it has read of a campaign at rest, and holds its record,
// until it ends.
class Client {
 public:
  explicit Client(const specs::Plan& plan);
  // Reads the plan when a query needs it.
  explicit Client(std::filesystem::path campaign, Waiting waiting = {});
  ~Client();

  // Without follow-ups; campaign_status() has them.
  CampaignStatus status();
  wire::WatchAnswer watch(const wire::WatchRequest& what);
  wire::TasksAnswer tasks(const wire::TasksRequest& page);
  // From the coordinator alone; empty if none answers. Never opens the record.
  std::optional<wire::TasksAnswer> live_tasks(const wire::TasksRequest& page) const;
  wire::ExplainAnswer explain(wire::TaskPlace task);
  wire::UsageAnswer usage(const wire::UsageRequest& page);
  wire::UsageSummary usage_summary();
  std::vector<wire::WorkerView> workers();  // all, page by page
  wire::AllocationsAnswer allocations();
  // The number of tasks that a retry would run again.
  std::uint64_t retryable(const wire::Selection& tasks);
  void snapshot(const std::filesystem::path& path);
  // Only a coordinator can carry it out: empty if none lives.
  std::optional<wire::Done> command(const wire::Request& request);

  // True if the last answer came from a coordinator.
  bool live() const { return record_ == nullptr; }

 private:
  struct Record;
  wire::Answer ask(const wire::Request& request);
  template <class Answer>
  Answer ask_for(const wire::Request& request);
  std::optional<wire::Answer> ask_coordinator(const wire::Request& request) const;
  template <class AtRest>
  auto ask_or(const wire::Request& request, AtRest at_rest) -> decltype(at_rest());

  std::filesystem::path campaign_;
  Waiting waiting_;
  const specs::Plan* plan_ = nullptr;
  std::unique_ptr<Record> record_;
};

// A dashboard's view of a campaign without a coordinator, with its time in so many slices. Does not wait, and
// holds the record only while it reads: empty if another process holds it.
struct RecordedCampaign {
  wire::WatchAnswer watch;
  std::vector<wire::WorkerView> workers;
  Timeline timeline;
};
std::optional<RecordedCampaign> read_record(const std::filesystem::path& campaign,
                                            const wire::WatchRequest& what, std::size_t slices);

// The status of a campaign, with the progress of its follow-ups.
CampaignStatus campaign_status(const std::filesystem::path& campaign, Waiting waiting = {});

}  // namespace wflow::engine
