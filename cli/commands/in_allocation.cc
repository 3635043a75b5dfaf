// SPDX-License-Identifier: Apache-2.0
// batch: {coordinator: in_allocation}. The login node submits the first allocation and follows; in each
// allocation a coordinator waits (`wflow coordinate`) until the campaign is free, then continues it.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/loop_inputs.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "cli/view/display.h"
#include "engine/batch/batch_system.h"
#include "engine/coordinate/coordinator.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"
#include "engine/store/campaign_lock.h"
#include "engine/store/store.h"
#include "engine/wire/keys.h"

namespace wflow::cli {

namespace fs = std::filesystem;
namespace batch = engine::batch;
namespace store = engine::store;

namespace {

constexpr double kLook_s = 1;            // between two looks at a campaign that a process coordinates
constexpr double kGapLook_s = 2;         // between two looks at one that waits for an allocation
constexpr double kFirstQuestion_s = 20;  // until then, such a wait counts as one in the queue; ...
constexpr double kQuestion_s = 300;      // ... then the scheduler is asked this often
constexpr int kLaunches = 3;             // launches without progress
constexpr double kAgain_s = 10;          // pause after an error of the system
constexpr int kErrors = 5;

bool wait_for_signal(const SignalQueue& signals, double seconds) {
  pollfd poll{signals.descriptor(), POLLIN, 0};
  return ::poll(&poll, 1, static_cast<int>(1000 * seconds)) > 0;
}

// Coordinates in this process until allocations are submitted.
RunEnd launch(const specs::Plan& plan, const RunOptions& given, bool resumed) {
  RunOptions options = given;
  options.own_allocation = {true, {}, 0};
  return run_here(plan, options, resumed);
}

// True if a job of the campaign is queued or runs, or may be.
bool has_allocations(const fs::path& campaign) {
  std::set<std::string> schedulers;
  for (const batch::Allocation& allocation : store::Store(campaign).allocations()) {
    if (allocation.state != batch::AllocationState::ended) schedulers.insert(allocation.scheduler);
  }
  const std::string prefix = engine::job_prefix(campaign, engine::wire::read_keys(campaign).token);
  return std::ranges::any_of(schedulers, [&](const std::string& name) {
    const auto scheduler = batch::make_batch_system(name);
    const batch::JobList list = scheduler ? scheduler->query(prefix) : batch::JobList{};
    return !list.answered || std::ranges::any_of(list.jobs, [](const batch::JobStatus& job) {
      return job.state != batch::JobState::done && job.state != batch::JobState::failed;
    });
  });
}

// Shows a campaign whose coordinator moves between allocations. In `wflow run`, Ctrl-C acts as in a process
// that coordinates; in `wflow attach` it ends the display.
class Follower {
 public:
  Follower(const specs::Plan& plan, const RunOptions& options, Display::Interrupt interrupt)
      : plan_(plan),
        options_(options),
        interrupt_(interrupt),
        top_(plan.campaign()),
        at_(top_),
        signals_({SIGINT, SIGTERM, SIGHUP}),
        display_(options.silent(), interrupt) {
    options_.retry.reset();
    options_.run_again = {};
  }

  int run() {
    for (;;) {
      if (take_signals()) return static_cast<int>(ExitCode::ok);
      const Where where = look();
      if (where == Where::over) return finish();
      if (where == Where::between) {
        if (const auto code = look_for_allocation()) return *code;
      } else {
        between_since_s_.reset();
        asked_ = false;
        show();
      }
      wait_for_signal(signals_, where == Where::between ? kGapLook_s : kLook_s);
    }
  }

 private:
  enum class Where : std::uint8_t { coordinated, between, over };

  Where look() {
    if (const auto at = engine::running_campaign(top_)) {
      at_ = *at;
      seen_.clear();
      return Where::coordinated;
    }
    if (store::is_held(at_)) return Where::coordinated;
    // Read the record again only after a change.
    if (const std::string now = marks(); now != std::exchange(seen_, now)) {
      const auto found = read();
      if (!found) {  // a process is about to lock it
        seen_.clear();
        return Where::coordinated;
      }
      last_ = *found;
    }
    return last_;
  }

  std::string marks() const {
    const auto mark = [](const fs::path& campaign) {
      const auto record = store::read_lock(campaign);
      return record ? fmt::format("{} {} ", record->number, static_cast<int>(record->state)) : "none ";
    };
    return mark(top_) + mark(at_);
  }

  std::optional<Where> read() {
    try {
      const engine::CampaignStatus status = engine::campaign_status(top_);
      const auto next = std::ranges::find_if(status.followups, &engine::FollowupView::left);
      const bool ended = status.ended() == status.elements();
      if (ended && next == status.followups.end()) return Where::over;
      if (ended && !next->directory.empty() && is_campaign(next->directory)) at_ = next->directory;
      const auto record = store::read_lock(ended ? at_ : top_);
      if (record && record->state == store::HolderState::released && (!ended || at_ != top_))
        return Where::over;
      if (!ended) display_.show(plan_, status);
      return Where::between;
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
      return std::nullopt;
    }
  }

  void show() {
    try {
      if (!is_campaign(at_)) return;
      const engine::CampaignStatus status = engine::campaign_status(at_);
      at_ == top_ ? display_.show(plan_, status) : display_.show(status);
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
    }
  }

  // The next coordinator starts with the next allocation. If none is left, no coordinator would start.
  std::optional<int> look_for_allocation() {
    if (interrupt_ == Display::Interrupt::ends_display) return std::nullopt;
    const double now_s = steady_now_s();
    if (!between_since_s_) between_since_s_ = now_s;
    const double due_s = asked_ ? asked_s_ + kQuestion_s : *between_since_s_ + kFirstQuestion_s;
    if (now_s < due_s) return std::nullopt;
    asked_ = true;
    asked_s_ = now_s;
    try {
      if (has_allocations(at_)) return std::nullopt;
      count_launch();
      const RunEnd end = launch(plan_, options_, true);
      if (!end.handed_over) return end.code;
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;  // busy: the next coordinator has begun
    }
    between_since_s_.reset();
    return std::nullopt;
  }

  void count_launch() {
    const std::uint64_t ended = store::Store(at_).status_at_rest().ended();
    launches_ = ended > progress_ ? 1 : launches_ + 1;
    progress_ = ended;
    if (launches_ <= kLaunches) return;
    throw Error(ExitCode::system,
                fmt::format("{} allocations in a row ended and no task with them; see the output of their "
                            "jobs in {}, then continue with: wflow resume {}",
                            kLaunches, (at_ / ".wflow" / "allocations").string(), top_.string()));
  }

  // True: this process ends, and the campaign goes on (for example, the terminal is gone).
  bool take_signals() {
    while (const auto signal = signals_.take()) {
      if (*signal == SIGHUP || interrupt_ == Display::Interrupt::ends_display) return true;
      const bool stop = *signal == SIGTERM || std::exchange(interrupted_, true);
      ask(stop ? engine::wire::Request(engine::wire::StopRequest{})
               : engine::wire::Request(engine::wire::DrainRequest{}));
    }
    return false;
  }

  void ask(const engine::wire::Request& request) {
    try {
      if (!engine::Client(at_).command(request)) command_between_allocations(read_plan_to_run(at_), request);
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
      fmt::print(stderr, "wflow: {}\n", error.what());
    }
  }

  int finish() {
    const engine::CampaignStatus status = engine::campaign_status(top_);
    display_.finish(plan_, status);
    const ExitCode code = whole_code(status);
    if (options_.json) {
      fmt::print("{}\n", engine::to_json(status).dump(2));
    } else if (!options_.quiet) {
      fmt::print("\n{} in {}; campaign: {}\n", name_of(status.state), text::format_duration(status.elapsed_s),
                 status.directory);
      if (code == ExitCode::interrupted) fmt::print("continue with: wflow resume {}\n", status.directory);
    }
    const bool soft = code == ExitCode::tasks_failed && options_.soft_fail_ok &&
                      std::ranges::all_of(status.steps, [](const engine::StepStatus& step) {
                        return step.count(engine::ElementState::hard_failed) == 0;
                      });
    return static_cast<int>(soft ? ExitCode::ok : code);
  }

  const specs::Plan& plan_;
  RunOptions options_;
  Display::Interrupt interrupt_;
  fs::path top_, at_;  // the campaign, and the one that runs now
  SignalQueue signals_;
  Display display_;
  std::string seen_;
  Where last_ = Where::between;
  std::optional<double> between_since_s_;
  bool asked_ = false;
  double asked_s_ = 0;
  bool interrupted_ = false;
  int launches_ = 0;
  std::uint64_t progress_ = 0;
};

struct StandbyOptions {
  fs::path campaign, top;
  std::string allocation;
  bool keep_going = false;
};

double allocation_end_unix_s() {
  const auto scheduler = batch::make_batch_system(scheduler_around());
  try {
    return scheduler ? scheduler->ends_unix_s().value_or(0) : 0;
  } catch (const Error&) {
    return 0;  // the scheduler does not answer now; the coordinator asks for all of its jobs anyway
  }
}

// Cancels the allocation after the campaign has ended. Otherwise a worker that started too late to get the
// end would wait for a coordinator, and hold the allocation, for its whole linger time.
void give_back(const StandbyOptions& standby) {
  try {
    for (const batch::Allocation& allocation : store::Store(standby.campaign).allocations()) {
      if (allocation.token != standby.allocation || allocation.id.empty()) continue;
      if (const auto scheduler = batch::make_batch_system(allocation.scheduler))
        scheduler->cancel({allocation.id});
    }
  } catch (const Error& error) {
    fmt::print(stderr, "wflow: {}\n", error.what());  // the allocation ends with its workers
  }
}

// Waits until no process coordinates the campaign. Ends with the campaign or with its allocation.
int stand_by(const StandbyOptions& standby) {
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGUSR1});
  std::signal(SIGPIPE, SIG_IGN);
  const specs::Plan plan = read_plan_to_run(standby.top.empty() ? standby.campaign : standby.top);
  RunOptions options;
  options.quiet = true;
  options.keep_going = standby.keep_going;
  options.own_allocation = {true, standby.allocation, allocation_end_unix_s()};
  for (int errors = 0;;) {
    while (const auto signal = signals.take()) {
      if (*signal != SIGHUP) return static_cast<int>(ExitCode::ok);
    }
    const auto record = store::read_lock(standby.campaign);
    if (record && record->state == store::HolderState::released) return static_cast<int>(ExitCode::ok);
    double wait_s = kLook_s;
    try {
      const RunEnd end = run_here(plan, options, true);
      if (!end.handed_over) give_back(standby);
      return end.code;
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) {
        fmt::print(stderr, "wflow: {}\n", error.what());
        if (error.code() != ExitCode::system || ++errors > kErrors) return static_cast<int>(error.code());
        wait_s = kAgain_s;
      }
    }
    wait_for_signal(signals, wait_s);
  }
}

}  // namespace

bool lives_in_allocations(const specs::Plan& plan, const RunOptions& options) {
  return plan.study().batch.coordinator_in_allocation && !options.local;
}

bool command_between_allocations(const specs::Plan& plan, const engine::wire::Request& request) {
  if (!plan.study().batch.coordinator_in_allocation) return false;
  const auto record = store::read_lock(plan.campaign());
  if (!record || record->state == store::HolderState::released || store::is_held(plan.campaign()))
    return false;
  RunOptions options;
  options.quiet = true;
  options.first = request;
  launch(plan, options, true);
  return true;
}

int coordinate_in_allocations(const specs::Plan& plan, const RunOptions& options, bool resumed) {
  if (!options.until.empty())
    throw Error(ExitCode::usage, "--until is not possible where the coordinator runs in allocations");
  if (!options.time_limit.empty()) {
    throw Error(ExitCode::usage,
                "--time-limit is for a coordinator that runs here; with 'coordinator: in_allocation' use "
                "wflow drain");
  }
  std::signal(SIGPIPE, SIG_IGN);
  const RunEnd end = launch(plan, options, resumed);
  if (end.handed_over && !options.detach)
    return Follower(plan, options, Display::Interrupt::ends_campaign).run();
  if (options.json) fmt::print("{}\n", engine::to_json(engine::campaign_status(plan.campaign())).dump(2));
  if (!end.handed_over) return end.code;
  if (!options.silent())
    fmt::print("the coordinator starts with the allocation; wflow attach shows it, wflow drain ends it\n");
  return static_cast<int>(ExitCode::ok);
}

int attach_in_allocations(const specs::Plan& plan, bool quiet, bool json) {
  RunOptions options;
  options.quiet = quiet;
  options.json = json;
  return Follower(plan, options, Display::Interrupt::ends_display).run();
}

void add_coordinate(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<StandbyOptions>();
  CLI::App* command = app.add_subcommand(
      "coordinate", "coordinate a campaign as soon as nobody else does (started by its allocations)");
  command->group("");
  command->add_option("--campaign", options->campaign)->required();
  command->add_option("--top", options->top);
  command->add_option("--allocation", options->allocation)->required();
  command->add_flag("--keep-going", options->keep_going);
  command->callback([options, &chosen] { chosen = [options] { return stand_by(*options); }; });
}

}  // namespace wflow::cli
