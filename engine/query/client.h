// SPDX-License-Identifier: Apache-2.0
// Asks about one campaign, for every command: its coordinator where one lives, else its record. The one place
// that waits for a coordinator that begins, ends or is busy.
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

// How long a question waits for a coordinator that begins or ends, and for one that is busy.
struct Waiting {
  double change_s = 10;
  double answer_s = 20;
};

// Throws Error: as store::require_record(); busy where a coordinator does not answer; what it or the record
// objects to. Keeps what it has read of a campaign at rest, and holds its record, until it ends.
class Client {
 public:
  explicit Client(const specs::Plan& plan);
  // Reads the plan when a question needs it.
  explicit Client(std::filesystem::path campaign, Waiting waiting = {});
  ~Client();

  // Without a look at what follows; campaign_status() has that.
  CampaignStatus status();
  wire::WatchAnswer watch(const wire::WatchRequest& what);
  wire::TasksAnswer tasks(const wire::TasksRequest& page);
  // Of the coordinator alone; nothing when none answers. Never opens the record.
  std::optional<wire::TasksAnswer> live_tasks(const wire::TasksRequest& page) const;
  wire::ExplainAnswer explain(wire::TaskPlace task);
  wire::UsageAnswer usage(const wire::UsageRequest& page);
  wire::UsageSummary usage_summary();
  std::vector<wire::WorkerView> workers();  // all, page by page
  wire::AllocationsAnswer allocations();
  // How many tasks a retry would run again.
  std::uint64_t retryable(const wire::Selection& tasks);
  void snapshot(const std::filesystem::path& path);
  // Only a coordinator can do it: nothing when none lives.
  std::optional<wire::Done> command(const wire::Request& request);

  // Whether the last answer came from a coordinator.
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

// What a dashboard shows of a campaign that no coordinator holds, with its time in so many slices. Waits for
// nobody, and holds the record only while it reads: nothing where somebody else has it.
struct RecordedCampaign {
  wire::WatchAnswer watch;
  std::vector<wire::WorkerView> workers;
  Timeline timeline;
};
std::optional<RecordedCampaign> read_record(const std::filesystem::path& campaign,
                                            const wire::WatchRequest& what, std::size_t slices);

// The status of a campaign, and how far those are that follow on it.
CampaignStatus campaign_status(const std::filesystem::path& campaign, Waiting waiting = {});

}  // namespace wflow::engine
