// SPDX-License-Identifier: Apache-2.0
// Runs a campaign, then what follows on it: campaigns that its tasks submitted, iterations of its study.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/registry.h"
#include "cli/commands/run.h"
#include "cli/view/display.h"
#include "engine/coordinate/coordinator.h"
#include "engine/coordinate/signals.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

using Clock = std::chrono::steady_clock;

class CampaignRun {
 public:
  CampaignRun(const specs::Plan& top, const RunOptions& options)
      : top_(top),
        options_(options),
        signals_({SIGINT, SIGTERM, SIGHUP}),
        queue_(top.campaign()),
        limit_s_(limit_of(options)) {}

  int run(bool resumed) {
    run_top(resumed);
    if (resumed) look_again();
    while (!asked_to_end()) {
      auto next = queue_.next();
      if (!next) return static_cast<int>(worst());
      follow(*next);
    }
    return finish();
  }

 private:
  // What ended before a kill does not begin again only because others follow on it.
  void run_top(bool resumed) {
    if (resumed && !options_.retry && !queue_.all().empty()) {
      const engine::CampaignStatus status = engine::store::Store(top_.campaign()).status_at_rest();
      if (status.ended() == status.elements()) {
        code_ = engine::end_code(status);
        queue_.take_from(top_, status, options_.keep_going);
        return;
      }
    }
    run_campaign(top_, resumed, options_.retry);
    code_ = last_code_;
  }

  // What went wrong in one that follows may have been mended meanwhile (wflow retry); then it goes on from
  // there.
  void look_again() {
    for (engine::store::Followup& followup : queue_.all()) {
      if (followup.exit_code == 0) continue;
      if (!is_campaign(followup.directory)) {
        queue_.reopen(followup);
        continue;
      }
      const specs::Plan plan = read_plan(followup.directory);
      const auto status = engine::store::Store(plan.campaign()).status_at_rest();
      if (status.ended() < status.elements()) {
        queue_.reopen(followup);
      } else {
        queue_.take_from(plan, status, options_.keep_going);
        queue_.end(followup, engine::followup_state(status.state), engine::end_code(status));
      }
    }
  }

  void follow(engine::store::Followup& followup) {
    const bool made = is_campaign(followup.directory);
    try {
      const specs::Plan plan = queue_.begin(followup);
      if (!options_.silent()) {
        const std::string what =
            followup.kind == "iteration" ? fmt::format("iteration {}", followup.iteration) : followup.kind;
        fmt::print("\n{}: {}, {} tasks in {}\n", what, plan.study().name,
                   text::format_count(plan.element_count()), plan.campaign().string());
      }
      std::optional<engine::wire::RetryRequest> retry;
      if (followup.kind == "restart") retry.emplace();
      if (!run_campaign(plan, made, retry)) return;  // later
      queue_.end(followup, engine::followup_state(last_.state), last_code_);
    } catch (const Error& error) {
      // One that can't begin must not keep the others from running; an iteration has none beside it.
      const bool its_own =
          error.code() == ExitCode::spec || error.code() == ExitCode::data || error.code() == ExitCode::usage;
      if (!its_own || followup.kind == "iteration") throw;
      fmt::print(stderr, "wflow: {}\n", error.what());
      queue_.end(followup, engine::FollowupState::could_not_begin, error.code());
    }
  }

  // True when it has ended.
  bool run_campaign(const specs::Plan& plan, bool resumed,
                    const std::optional<engine::wire::RetryRequest>& retry) {
    engine::CoordinatorOptions coordinator;
    coordinator.slots = options_.slots;
    coordinator.local = options_.local;
    coordinator.zero_workers = options_.zero || options_.zero_failures > 0;
    coordinator.zero_failures = options_.zero_failures;
    coordinator.max_range = options_.zero_bundle;
    coordinator.resumed = resumed;
    coordinator.retry = retry;
    coordinator.keep_going = options_.keep_going;
    if (limit_s_ > 0) coordinator.time_limit_s = std::max(limit_s_ - elapsed_s(), 1e-3);
    Display display(options_.silent());
    bool recorded = false;  // only once this process coordinates
    const engine::CoordinatorEnd end =
        engine::run_coordinator(plan, coordinator, [&](const engine::CampaignStatus& status) {
          if (!std::exchange(recorded, true)) record_environment(plan.campaign());
          display.show(status);
          last_ = status;
        });
    display.finish(last_);
    last_code_ = end.code;
    asked_ = asked_ || end.asked_to_end || end.code == ExitCode::interrupted;
    if (!options_.silent()) {
      fmt::print("\n{} in {}; campaign: {}\n", name_of(last_.state), text::format_duration(last_.elapsed_s),
                 last_.directory);
    }
    queue_.take_from(plan, last_, options_.keep_going);
    return last_.ended() == last_.elements();
  }

  bool asked_to_end() {
    while (const auto signal = signals_.take()) asked_ = asked_ || *signal != SIGHUP;
    return asked_ || (limit_s_ > 0 && elapsed_s() > limit_s_);
  }

  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  ExitCode worst() {
    ExitCode code = code_;
    for (const auto& followup : queue_.all())
      code = std::max(code, static_cast<ExitCode>(followup.exit_code));
    return code;
  }

  // Asked to end: is there anything left?
  int finish() {
    const ExitCode code = queue_.next() ? std::max(worst(), ExitCode::interrupted) : worst();
    if (code == ExitCode::interrupted && !options_.silent())
      fmt::print("continue with: wflow resume {}\n", top_.campaign().string());
    return static_cast<int>(code);
  }

  const specs::Plan& top_;
  const RunOptions& options_;
  engine::SignalQueue signals_;  // between coordinators, and what they have not taken
  engine::FollowupQueue queue_;
  double limit_s_;
  Clock::time_point began_ = Clock::now();
  bool asked_ = false;
  ExitCode code_ = ExitCode::ok;  // of the top campaign
  engine::CampaignStatus last_;   // of the campaign that was run last
  ExitCode last_code_ = ExitCode::ok;
};

}  // namespace

double limit_of(const RunOptions& options) {
  if (options.time_limit.empty()) return 0;
  const auto seconds = yaml::parse_seconds(options.time_limit);
  if (!seconds || *seconds <= 0) {
    throw Error(ExitCode::usage,
                fmt::format("--time-limit '{}' is no time; write 90, 90s, 10min, 1.5h or hh:mm:ss",
                            options.time_limit));
  }
  return *seconds;
}

int coordinate(const specs::Plan& plan, const RunOptions& options, bool resumed) {
  remember_campaign(plan.campaign());
  if (options.detach && detach(plan.campaign())) {
    if (options.json) {
      fmt::print("{}\n",
                 nlohmann::json{{"directory", plan.campaign().string()}, {"state", "running"}}.dump());
    } else if (!options.quiet) {
      fmt::print("runs in the background; wflow attach shows it, wflow drain ends it\n");
    }
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  const int code = CampaignRun(plan, options).run(resumed);
  if (options.json) fmt::print("{}\n", engine::to_json(engine::campaign_status(plan.campaign())).dump(2));
  return code;
}

}  // namespace wflow::cli
