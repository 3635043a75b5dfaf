// SPDX-License-Identifier: Apache-2.0
// Runs a campaign, then the campaigns that follow on it: those that its tasks submitted, iterations of its
// study.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/loop_inputs.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/update.h"
#include "cli/commands/commands.h"
#include "cli/commands/early_followup.h"
#include "cli/commands/handover.h"
#include "cli/commands/run.h"
#include "cli/observe/observer.h"
#include "cli/top/words.h"
#include "cli/view/display.h"
#include "cli/view/status.h"
#include "engine/batch/batch_system.h"
#include "engine/coordinate/coordinator.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"
#include "engine/store/campaign_lock.h"

namespace wflow::cli {

namespace {

using Clock = std::chrono::steady_clock;

double around_limit_s(const engine::batch::AllocationAround& around);

class CampaignRun {
 public:
  CampaignRun(const specs::Plan& top, const RunOptions& options)
      : top_(top),
        options_(options),
        signals_({SIGINT, SIGTERM, SIGHUP, SIGUSR1}),
        queue_(top.campaign()),
        limit_s_(limit_of(options)) {
    if (options.observed) observer_.emplace(top);
    const double around_s = options.around ? around_limit_s(*options.around) : 0;
    if (around_s > 0) limit_s_ = limit_s_ > 0 ? std::min(limit_s_, around_s) : around_s;
  }

  int run(bool resumed) {
    if (!resumed && observer_) observer_->begins_anew();
    run_top(resumed);
    if (resumed) look_again();
    while (!asked_to_end()) {
      auto next = queue_.next();
      if (!next) {
        if (top_ran_ && observer_ && !options_.more_follows) observer_->ended(top_status_);
        return static_cast<int>(worst());
      }
      follow(*next);
    }
    return handed_over_ ? static_cast<int>(ExitCode::interrupted) : finish();
  }
  bool handed_over() const { return handed_over_; }

 private:
  // A campaign that has ended is not run again: nothing is left to do, and its elapsed time would go on.
  void run_top(bool resumed) {
    if (resumed && !options_.retry && options_.run_again.parts.empty()) {
      if (const auto status = ended_status()) {
        code_ = engine::end_code(*status);
        note_hard_failures(*status);
        queue_.take_from(top_, *status, options_.keep_going);
        if (!options_.silent() && !queue_.next()) show_ended(*status);
        return;
      }
    }
    run_campaign(top_, resumed, options_.retry, options_.run_again);
    code_ = last_code_;
  }

  // The status of the top campaign, if it and all of its workers have ended.
  std::optional<engine::CampaignStatus> ended_status() const {
    engine::store::Store store(top_.campaign());
    const bool all_gone =
        store.restore().workers.empty();  // reads all of the record, so that damage is found
    engine::CampaignStatus status = store.status_at_rest();
    if (!all_gone || status.ended() < status.elements()) return std::nullopt;
    return status;
  }

  void show_ended(const engine::CampaignStatus& status) const {
    for (const std::string& line : overview(status, standard_output())) fmt::print("{}\n", line);
    fmt::print("\nnothing is left to run; campaign: {}\n", status.directory);
    const std::uint64_t again = status.failed() + status.cancelled();
    if (again == 0) return;
    fmt::print("{} failed or cancelled; run {} again with: wflow retry {}\n",
               again == 1 ? "1 task is" : text::format_count(again) + " tasks are",
               again == 1 ? "it" : "them", status.directory);
  }

  // The user may have repaired a failed campaign that follows (wflow retry); then the queue goes on there.
  void look_again() {
    for (engine::store::Followup& followup : queue_.all()) {
      if (followup.exit_code == 0) continue;
      if (!is_campaign(followup.directory)) {
        queue_.reopen(followup);
        continue;
      }
      const specs::Plan plan = read_plan_to_run(followup.directory);
      const auto status = engine::store::Store(plan.campaign()).status_at_rest();
      note_hard_failures(status);
      if (status.ended() < status.elements()) {
        queue_.reopen(followup);
      } else {
        queue_.take_from(plan, status, options_.keep_going);
        queue_.end(followup, engine::followup_state(status.state), engine::end_code(status));
      }
    }
  }

  void follow(engine::store::Followup& followup) {
    try {
      const specs::Plan plan = queue_.begin(followup);
      const engine::CampaignStatus before = engine::store::Store(plan.campaign()).status_at_rest();
      const bool began = !before.history.empty();  // before a kill, or while the campaign waited for it
      if (!options_.silent()) {
        const std::string what =
            followup.kind == "iteration" ? fmt::format("iteration {}", followup.iteration) : followup.kind;
        fmt::print("\n{}: {}, {} in {}\n", what, plan.study().name, tasks_text(plan.element_count()),
                   plan.campaign().string());
      }
      std::optional<engine::wire::RetryRequest> retry;
      if (followup.kind == "restart") retry.emplace();
      if (began && !retry && before.ended() == before.elements()) {
        settle(plan, before);
      } else if (!run_campaign(plan, began, retry)) {
        return;  // it runs later
      }
      queue_.end(followup, engine::followup_state(last_.state), last_code_);
    } catch (const Error& error) {
      // A campaign that can't begin must not prevent the others; an iteration has no others beside it.
      const bool its_own =
          error.code() == ExitCode::spec || error.code() == ExitCode::data || error.code() == ExitCode::usage;
      if (!its_own || followup.kind == "iteration") throw;
      fmt::print(stderr, "wflow: {}\n", error.what());
      queue_.end(followup, engine::FollowupState::could_not_begin, error.code());
    }
  }

  // Takes in a campaign that has ended outside of this queue.
  void settle(const specs::Plan& plan, const engine::CampaignStatus& status) {
    last_ = status;
    last_code_ = engine::end_code(status);
    note_hard_failures(status);
    queue_.take_from(plan, status, options_.keep_going);
  }

  // True if the campaign has ended.
  bool run_campaign(const specs::Plan& plan, bool resumed,
                    const std::optional<engine::wire::RetryRequest>& retry,
                    const engine::RunAgain& run_again = {}) {
    // The user ended the campaign between the last check and the lock: no process continues it on its own.
    const auto holder = engine::store::read_lock(plan.campaign());
    if (!options_.own_allocation.token.empty() && holder &&
        holder->state == engine::store::HolderState::released) {
      asked_ = true;
      return false;
    }
    engine::CoordinatorOptions coordinator;
    coordinator.slots = options_.slots;
    coordinator.local = options_.local;
    coordinator.listen = options_.listen;
    coordinator.fence_s = options_.fence_s;
    coordinator.max_range = options_.max_range;
    coordinator.resumed = resumed;
    coordinator.retry = retry;
    coordinator.run_again = run_again;
    coordinator.keep_going = options_.keep_going;
    if (plan.campaign() == top_.campaign()) coordinator.until = options_.until;
    coordinator.around = options_.around;
    coordinator.own_allocation = options_.own_allocation;
    coordinator.top = top_.campaign();
    if (plan.campaign() == top_.campaign()) coordinator.first = options_.first;
    if (limit_s_ > 0) coordinator.time_limit_s = std::max(limit_s_ - elapsed_s(), 1e-3);
    // No task starts before each array has its row and its place in the graph.
    constexpr std::uint32_t kManyArrays = 2'000'000;
    if (plan.array_count() > kManyArrays && !options_.silent())
      fmt::print(stderr, "preparing {} task arrays: about a minute for 5 million of them\n",
                 text::format_count(plan.array_count()));
    const bool moves = options_.own_allocation.moves;  // if so, another process shows the campaign
    Display display(options_.silent() || moves, Display::Interrupt::ends_campaign);
    EarlyFollowup early(plan, options_.slots);
    engine::write_merlin_shim(plan.campaign());
    bool recorded = false;  // becomes true once this process coordinates
    double before_s = 0;    // under earlier commands
    const engine::CoordinatorEnd end =
        engine::run_coordinator(plan, coordinator, [&](const engine::CampaignStatus& status) {
          const bool on_login_node = options_.own_allocation.token.empty();
          const bool first = !std::exchange(recorded, true);
          if (first) before_s = status.elapsed_s;
          if (first && on_login_node) {
            record_environment(plan.campaign());
            record_start(plan.campaign(), options_);
          }
          display.show(plan, status);
          if (observer_ && plan.campaign() == top_.campaign()) observer_->look(status);
          if (options_.look) options_.look(status);
          if (moves && on_login_node && !options_.silent()) print_notes(status);
          last_ = status;
          if (!moves) early.look(status);
        });
    display.finish(plan, last_);
    if (plan.campaign() == top_.campaign()) {
      top_status_ = last_;
      top_ran_ = true;
      if (observer_) observer_->rest(last_);
    }
    if (end.code != ExitCode::interrupted) early.drain([this] { return asked_to_end(); });
    last_code_ = end.code;
    note_hard_failures(last_);
    asked_ = asked_ || end.asked_to_end || end.code == ExitCode::interrupted;
    handed_over_ = end.handed_over;
    if (handed_over_) return false;
    if (!options_.silent()) {
      say(fmt::format("\n{} in {}; campaign: {}\n", top::spaced(name_of(last_.state)),
                      elapsed_text(last_.elapsed_s, last_.elapsed_s - before_s), last_.directory));
    }
    queue_.take_from(plan, last_, options_.keep_going);
    return last_.ended() == last_.elements();
  }

  // Output that can't be written (| head, a full disk) must not end the campaign: fmt::print would throw.
  static void say(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

  // Prints the notes about the first allocation.
  void print_notes(const engine::CampaignStatus& status) {
    for (const engine::HistoryView& row : status.history) {
      if (row.number <= printed_ || row.time_s < began_unix_s_) continue;
      printed_ = row.number;
      if (row.kind == "note" || row.text.starts_with("allocation ")) say(row.text + "\n");
    }
    std::fflush(stdout);
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
    const bool soft = code == ExitCode::tasks_failed && !hard_failures_;
    if (soft && options_.soft_fail_ok) return ExitCode::ok;
    if (soft && top_.study().format.dialect == specs::Dialect::merlin && !options_.silent())
      fmt::print("exit code 1, where merlin run ends with 0; to have that: --soft-fail-ok\n");
    if (soft && !top_.study().format.certain && has_skipped() && !options_.silent())
      fmt::print(
          "what depends on failed tasks did not run; in Merlin's files it does: --dialect merlin, or a "
          "line '# wflow: merlin' in the study\n");
    return code;
  }

  bool has_skipped() const {
    return std::ranges::any_of(top_status_.steps, [](const engine::StepStatus& step) {
      return step.count(engine::ElementState::skipped) > 0;
    });
  }

  void note_hard_failures(const engine::CampaignStatus& status) {
    for (const engine::StepStatus& step : status.steps)
      hard_failures_ = hard_failures_ || step.count(engine::ElementState::hard_failed) > 0;
  }

  // After a stop request, anything left in the queue means `interrupted`.
  int finish() {
    const ExitCode code = queue_.next() ? std::max(worst(), ExitCode::interrupted) : worst();
    // A stop that came when all was done ends what follows: `wflow exec` would read its next commands.
    if (asked_ && code != ExitCode::interrupted) signals_.give_back(SIGINT);
    if (code == ExitCode::interrupted && !options_.silent())
      fmt::print("continue with: wflow resume {}\n", top_.campaign().string());
    return static_cast<int>(code);
  }

  const specs::Plan& top_;
  const RunOptions& options_;
  SignalQueue signals_;  // signals between two coordinators, and those that they have not taken
  engine::FollowupQueue queue_;
  std::optional<Observer> observer_;
  engine::CampaignStatus top_status_;  // at its end
  bool top_ran_ = false;               // in this process
  double limit_s_;
  Clock::time_point began_ = Clock::now();
  bool asked_ = false;
  bool handed_over_ = false;
  std::uint64_t printed_ = 0;  // numbers of the history
  double began_unix_s_ = unix_now_s();
  bool hard_failures_ = false;    // exit code 102, of any campaign
  ExitCode code_ = ExitCode::ok;  // exit code of the top campaign
  engine::CampaignStatus last_;   // status of the campaign that ran last
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

RunEnd run_here(const specs::Plan& plan, const RunOptions& options, bool resumed) {
  remove_left_files(plan.campaign() / ".wflow");
  try {
    CampaignRun run(plan, options);
    const int code = run.run(resumed);
    if (!run.handed_over()) {
      for (const std::string& line : drop_replaced(plan)) {
        if (!options.silent()) fmt::print("{}\n", line);
      }
    }
    return {code, run.handed_over()};
  } catch (const Error& error) {
    // The command line was right: the campaign existed when it began.
    if (error.code() == ExitCode::usage && !is_campaign(plan.campaign()))
      throw Error(ExitCode::system, fmt::format("{} has lost its record while it was run: {}",
                                                plan.campaign().string(), error.what()));
    if (error.code() != ExitCode::busy) throw;
    throw Error(ExitCode::busy,
                fmt::format("{}; show it with: wflow attach {}", error.what(), plan.campaign().string()));
  }
}

namespace {

// Workers end their tasks this long before the end of the allocation; the coordinator starts none in that
// time.
constexpr double kEnd_s = 9;

// Throws for a step that would wait for nodes that the allocation does not have.
void require_nodes(const specs::Plan& plan, const engine::batch::AllocationAround& around) {
  for (const specs::PlannedStep& step : plan.steps()) {
    const int asked = step.resources.min_nodes > 0 ? step.resources.min_nodes : step.resources.nodes;
    if (asked <= static_cast<int>(around.nodes.size())) continue;
    throw Error(ExitCode::usage,
                fmt::format("the step '{}' asks for {} nodes, and the {} allocation {} has {}; ask for more, "
                            "or run it on this machine alone with --local",
                            step.name, asked, around.scheduler, around.id, around.nodes.size()));
  }
}

// The allocation in which this process runs, unless the command line or the study says otherwise.
std::optional<engine::batch::AllocationAround> find_around(const specs::Plan& plan,
                                                           const RunOptions& options) {
  if (options.local || !options.own_allocation.token.empty()) return std::nullopt;
  auto around = engine::batch::allocation_around();
  if (!around) return std::nullopt;
  const std::string name = fmt::format("the {} allocation {} ({})", around->scheduler, around->id,
                                       text::join(around->nodes, ", "));
  const auto say = [&](const std::string& line) {
    if (!options.silent()) fmt::print("{}\n", line);
  };
  if (!engine::wanted_schedulers(plan.study()).empty()) {
    say(
        fmt::format("this runs in {}, and the study's batch: block submits allocations beside it; without "
                    "batch: the tasks would run in this one",
                    name));
    return std::nullopt;
  }
  if (!around->starts_workers) {
    say(fmt::format("tasks run on this machine alone, not in {}: 'srun' is not in PATH", name));
    return std::nullopt;
  }
  require_nodes(plan, *around);
  say(fmt::format(
      "tasks run in {}, a worker on each of its {} node{}; --local runs them on this machine alone", name,
      around->nodes.size(), around->nodes.size() == 1 ? "" : "s"));
  return around;
}

// The remaining time of the allocation, which also limits the campaign; 0: unknown.
double around_limit_s(const engine::batch::AllocationAround& around) {
  try {
    const auto scheduler = engine::batch::make_batch_system(around.scheduler);
    const auto ends_s = scheduler ? scheduler->ends_unix_s() : std::nullopt;
    if (ends_s) return std::max(*ends_s - unix_now_s() - kEnd_s, 1.0);
  } catch (const Error&) {
    // The scheduler does not answer now: the workers ask again later.
  }
  return 0;
}

}  // namespace

int coordinate(const specs::Plan& plan, const RunOptions& given, bool resumed) {
  RunOptions options = given;
  remember_campaign(plan.campaign());
  options.around = find_around(plan, options);
  if (lives_in_allocations(plan, options)) return coordinate_in_allocations(plan, options, resumed);
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
  const int code = run_here(plan, options, resumed).code;
  if (options.json) fmt::print("{}\n", engine::to_json(engine::campaign_status(plan.campaign())).dump(2));
  return code;
}

}  // namespace wflow::cli
