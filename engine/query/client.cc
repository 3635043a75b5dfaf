// SPDX-License-Identifier: Apache-2.0
#include "engine/query/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "engine/monitor/status.h"
#include "engine/query/queries.h"
#include "engine/schedule/graph.h"
#include "engine/store/campaign_lock.h"
#include "engine/store/store.h"
#include "engine/wire/keys.h"
#include "engine/wire/transport.h"
#include "specs/plan/workspace.h"

namespace wflow::engine {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kAgain{20};

bool has_record(const fs::path& campaign) {
  std::error_code ignored;
  return fs::exists(store::database_path(campaign), ignored);
}

wire::WatchAnswer watch_at_rest(store::Store& store, const wire::WatchRequest& what) {
  wire::WatchAnswer answer;
  answer.status = store.status_at_rest();
  cut_to(answer, what);
  if (what.points > 0) answer.checkpoints = store.checkpoints();
  return answer;
}

[[noreturn]] void refuse(const wire::Refusal& refusal) {
  throw Error(refusal.code, refusal.sentence);
}

// The type of a coordinator's answer to the request.
template <class T>
T taken(wire::Answer&& answer, const fs::path& campaign) {
  if (const auto* refusal = std::get_if<wire::Refusal>(&answer.body)) refuse(*refusal);
  if (auto* body = std::get_if<T>(&answer.body)) return std::move(*body);
  throw Error(ExitCode::version,
              fmt::format("the coordinator of {} gives another kind of answer; use its version of wflow",
                          campaign.string()));
}

}  // namespace

// A campaign without a coordinator. The states that a coordinator would begin with are made when a question
// needs them: a status reads less.
struct Client::Record {
  explicit Record(const fs::path& campaign) : store(campaign) {}

  struct States {
    States(const specs::Plan& plan, store::Store& store)
        : scheduler(array_specs(plan), 0),
          queries(plan, scheduler, store, nothing_runs, [&store] { return store.status_at_rest(); }) {
      restore_states(scheduler, store.restore());
      scheduler.start();
    }
    Scheduler scheduler;
    const RunningElements nothing_runs;
    Queries queries;
  };

  wire::Answer answer(const wire::Request& request, const fs::path& campaign, const specs::Plan* plan) {
    if (std::holds_alternative<wire::StatusRequest>(request)) return {store.status_at_rest()};
    if (const auto* what = std::get_if<wire::WatchRequest>(&request)) return {watch_at_rest(store, *what)};
    if (std::holds_alternative<wire::UsageSummaryRequest>(request)) return {engine::usage_summary(store)};
    if (std::holds_alternative<wire::AllocationsRequest>(request))
      return {recorded_allocations(store.allocations())};
    if (plan == nullptr && !own_plan) own_plan.emplace(specs::read_campaign(campaign), campaign);
    if (!states) states.emplace(plan != nullptr ? *plan : *own_plan, store);
    return states->queries.answer(request);
  }

  store::Store store;
  std::optional<specs::Plan> own_plan;
  std::optional<States> states;
};

Client::Client(const specs::Plan& plan) : campaign_(plan.campaign()), plan_(&plan) {}
Client::Client(fs::path campaign, Waiting waiting) : campaign_(std::move(campaign)), waiting_(waiting) {}
Client::~Client() = default;

std::optional<wire::Answer> Client::ask_coordinator(const wire::Request& request) const {
  if (!wire::read_endpoint(campaign_)) return std::nullopt;
  // A copy of a large record takes its time, and must not be asked for twice. A coordinator that ends is
  // noticed all the same.
  constexpr double kCopy_s = 3600;
  const bool copies = std::holds_alternative<wire::SnapshotRequest>(request);
  const std::chrono::duration<double> answer(copies ? kCopy_s : waiting_.answer_s);
  return wire::ask(campaign_, {request}, std::chrono::duration_cast<std::chrono::milliseconds>(answer));
}

// A coordinator that begins or ends holds the record without answering yet, or no longer.
template <class AtRest>
auto Client::ask_or(const wire::Request& request, AtRest at_rest) -> decltype(at_rest()) {
  store::require_record(campaign_);
  int tries_without_coordinator = 0;
  for (const double until_s = steady_now_s() + waiting_.change_s;;) {
    if (auto answer = ask_coordinator(request)) return std::move(*answer);
    try {
      return at_rest();
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
      // No coordinator, also some seconds later: somebody else has the record open, and the error says who.
      if (!store::is_held(campaign_) && ++tries_without_coordinator > 1) throw;
    }
    if (const auto endpoint = wire::read_endpoint(campaign_); endpoint && wire::is_out_of_reach(*endpoint)) {
      throw Error(ExitCode::busy,
                  fmt::format("the coordinator of {} runs on {} and answers there only; ask there, "
                              "or start it with --listen",
                              campaign_.string(), endpoint->host));
    }
    if (steady_now_s() > until_s && !wire::read_endpoint(campaign_) && store::is_held(campaign_)) {
      throw Error(ExitCode::busy,
                  fmt::format("the coordinator of {} is preparing its tasks (or ending) and does not "
                              "answer yet; ask again in a while",
                              campaign_.string()));
    }
    if (steady_now_s() > until_s) {
      throw Error(ExitCode::busy,
                  fmt::format("the coordinator of {} does not answer; try again", campaign_.string()));
    }
    std::this_thread::sleep_for(kAgain);
  }
}

wire::Answer Client::ask(const wire::Request& request) {
  const auto at_rest = [&]() -> wire::Answer {
    if (!record_) record_ = std::make_unique<Record>(campaign_);
    return record_->answer(request, campaign_, plan_);
  };
  return record_ ? at_rest() : ask_or(request, at_rest);
}

template <class Answer>
Answer Client::ask_for(const wire::Request& request) {
  return taken<Answer>(ask(request), campaign_);
}

CampaignStatus Client::status() {
  return ask_for<wire::StatusAnswer>(wire::StatusRequest{});
}

wire::WatchAnswer Client::watch(const wire::WatchRequest& what) {
  return ask_for<wire::WatchAnswer>(what);
}

wire::TasksAnswer Client::tasks(const wire::TasksRequest& page) {
  return ask_for<wire::TasksAnswer>(page);
}

std::optional<wire::TasksAnswer> Client::live_tasks(const wire::TasksRequest& page) const {
  constexpr std::chrono::milliseconds kPromptly{500};
  if (!wire::read_endpoint(campaign_)) return std::nullopt;
  auto answer = wire::ask(campaign_, {page}, kPromptly);
  if (!answer) return std::nullopt;
  return taken<wire::TasksAnswer>(std::move(*answer), campaign_);
}

wire::ExplainAnswer Client::explain(wire::TaskPlace task) {
  return ask_for<wire::ExplainAnswer>(wire::ExplainRequest{task});
}

wire::UsageAnswer Client::usage(const wire::UsageRequest& page) {
  return ask_for<wire::UsageAnswer>(page);
}

wire::UsageSummary Client::usage_summary() {
  return ask_for<wire::UsageSummary>(wire::UsageSummaryRequest{});
}

std::vector<wire::WorkerView> Client::workers() {
  std::vector<wire::WorkerView> all;
  for (std::optional<std::uint64_t> from = 0; from;) {
    auto page = ask_for<wire::WorkersAnswer>(wire::WorkersRequest{*from});
    std::ranges::move(page.workers, std::back_inserter(all));
    from = page.next;
  }
  return all;
}

wire::AllocationsAnswer Client::allocations() {
  return ask_for<wire::AllocationsAnswer>(wire::AllocationsRequest{});
}

std::uint64_t Client::retryable(const wire::Selection& tasks) {
  return ask_for<wire::Done>(wire::RetryableRequest{tasks}).count;
}

void Client::snapshot(const fs::path& path) {
  store::refuse_existing(path);
  const wire::Request request = wire::SnapshotRequest{path.string()};
  const auto at_rest = [&]() -> wire::Answer {
    // A coordinator that has ended since may have made it without being heard.
    if (std::error_code ignored; fs::exists(path, ignored)) return wire::done_answer();
    if (!record_) record_ = std::make_unique<Record>(campaign_);
    return record_->answer(request, campaign_, plan_);
  };
  taken<wire::Done>(record_ ? at_rest() : ask_or(request, at_rest), campaign_);
}

std::optional<wire::Done> Client::command(const wire::Request& request) {
  auto answer = ask_or(request, [&]() -> std::optional<wire::Answer> {
    const store::Store nobody_holds_it(campaign_);
    return std::nullopt;
  });
  if (!answer) return std::nullopt;
  return taken<wire::Done>(std::move(*answer), campaign_);
}

namespace {

// How far it is: it may be running, have been killed, or not be there yet.
void look_at(FollowupView& followup, Waiting waiting) {
  if (followup.state == FollowupState::pending || !has_record(followup.directory)) return;
  try {
    const CampaignStatus status = Client(followup.directory, waiting).status();
    followup.state = followup_state(status.state);
    followup.elements = status.elements();
    followup.ended = status.ended();
    followup.failed = status.failed();
  } catch (const Error&) {
    // The record's view of it has to be enough.
  }
}

}  // namespace

std::optional<RecordedCampaign> read_record(const fs::path& campaign, const wire::WatchRequest& what,
                                            std::size_t slices) {
  store::require_record(campaign);
  try {
    store::Store store(campaign);
    RecordedCampaign recorded;
    recorded.watch = watch_at_rest(store, what);
    for (const store::WorkerRecord& row : store.workers()) recorded.workers.push_back(view_of(row));
    recorded.timeline = store.timeline(slices);
    return recorded;
  } catch (const Error& error) {
    if (error.code() == ExitCode::busy) return std::nullopt;
    throw;
  }
}

CampaignStatus campaign_status(const fs::path& campaign, Waiting waiting) {
  CampaignStatus status = Client(campaign, waiting).status();
  for (FollowupView& followup : status.followups) look_at(followup, waiting);
  return status;
}

}  // namespace wflow::engine
