// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/early_followup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "engine/batch/local_pool.h"
#include "engine/store/store.h"

namespace wflow::cli {

namespace fs = std::filesystem;
using engine::ElementState;

namespace {

// A task that submits a study as its last action ends within this time.
constexpr std::chrono::milliseconds kLastActionTime{1000};
constexpr std::chrono::milliseconds kPause{20};

std::uint64_t count(const engine::CampaignStatus& status, ElementState state) {
  std::uint64_t sum = 0;
  for (const engine::StepStatus& step : status.steps) sum += step.count(state);
  return sum;
}

std::uint64_t running(const engine::CampaignStatus& status) {
  std::uint64_t sum = 0;
  for (const engine::WorkerStatus& worker : status.workers) sum += worker.running;
  return sum;
}

// The least that waits() requires, whichever task submitted.
bool may_wait(const engine::CampaignStatus& status, std::uint64_t submitted) {
  return count(status, ElementState::ready) == 0 || running(status) <= submitted;
}

bool all_ended(const fs::path& campaign) {
  try {
    const auto status = engine::store::Store(campaign).status_at_rest();
    return status.ended() == status.elements();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

EarlyFollowup::EarlyFollowup(const specs::Plan& plan, int slots)
    : plan_(plan), slots_(slots > 0 ? slots : engine::batch::usable_cores()) {}

EarlyFollowup::~EarlyFollowup() {
  ask(Ask::stop);
  while (!ended()) pause();
}

void EarlyFollowup::pause() {
  std::this_thread::sleep_for(kPause);
}

// The submitted studies that have not ended, here or earlier.
std::vector<engine::Submitted> EarlyFollowup::left() {
  std::vector<engine::Submitted> left = engine::submitted_studies(plan_.campaign());
  std::erase_if(left, [&](const engine::Submitted& one) {
    if (one.id == running_) return false;
    if (settled_.contains(one.id)) return true;
    const auto directory = engine::submitted_directory(plan_.campaign(), one.id);
    if (!directory || !is_campaign(*directory) || !all_ended(*directory)) return false;
    settled_.insert(one.id);
    return true;
  });
  return left;
}

// True if no task is left to start, or none can start because every running task has submitted a study and
// holds its cores.
bool EarlyFollowup::waits(const engine::CampaignStatus& status,
                          const std::vector<engine::Submitted>& left) const {
  if (status.state != engine::CampaignState::running || running(status) == 0) return false;
  const std::uint64_t leased = count(status, ElementState::leased);
  if (count(status, ElementState::ready) == 0 && leased <= running(status)) return true;
  std::set<std::string> tasks;
  for (const engine::Submitted& one : left) tasks.insert(one.task);
  return running(status) <= tasks.size();
}

std::uint64_t EarlyFollowup::busy_cores(const engine::CampaignStatus& status) const {
  std::uint64_t cores = 0;
  for (const engine::StepStatus& step : status.steps) {
    const auto planned = std::find_if(plan_.steps().begin(), plan_.steps().end(),
                                      [&](const auto& known) { return known.name == step.name; });
    if (planned == plan_.steps().end()) continue;
    cores += step.count(ElementState::leased) *
             static_cast<std::uint64_t>(std::max(1, planned->resources.cores * planned->resources.procs));
  }
  return cores;
}

void EarlyFollowup::look(const engine::CampaignStatus& status) {
  if (child_ > 0 && ended()) since_.reset();
  const auto submitted = std::count_if(status.followups.begin(), status.followups.end(),
                                       [](const auto& view) { return view.kind == engine::kSubmitted; });
  // Most campaigns return here, without reading files.
  if (submitted == 0 || (child_ <= 0 && !may_wait(status, static_cast<std::uint64_t>(submitted)))) {
    since_.reset();
    return;
  }
  // A submission counts once its event is in the record.
  const auto all = engine::submitted_studies(plan_.campaign());
  if (all.size() > static_cast<std::size_t>(submitted)) return;
  const auto still = left();
  if (still.empty()) return;
  const bool is_running = child_ > 0;
  if (waits(status, still) == is_running || status.state != engine::CampaignState::running) {
    since_.reset();
    return;
  }
  if (!since_) since_ = Clock::now();
  if (Clock::now() - *since_ < kLastActionTime) return;
  if (is_running) ask(Ask::drain);
  if (!is_running) start(still.front(), status);
  since_.reset();
}

void EarlyFollowup::start(const engine::Submitted& submitted, const engine::CampaignStatus& status) {
  const std::uint64_t busy = busy_cores(status);
  const auto slots = static_cast<std::uint64_t>(slots_);
  const std::string cores = std::to_string(slots > busy ? slots - busy : 1);
  const fs::path said = plan_.campaign() / ".wflow" / "submitted" / (submitted.id + ".log");
  const FileDescriptor log = open_file(said, O_WRONLY | O_CREAT | O_APPEND);
  SpawnRequest request;
  request.argv = {sibling_program("wflow"),
                  "submitted",
                  plan_.campaign().string(),
                  submitted.id,
                  "--quiet",
                  "--slots",
                  cores};
  request.stdout_fd = request.stderr_fd = log.get();
  request.own_group = true;  // Ctrl-C goes to the campaign that waits
  request.die_with_parent = true;
  child_ = spawn(request);
  running_ = submitted.id;
  asked_ = Ask::nothing;
  log::write(LogLevel::info,
             fmt::format("{} waits for what it submitted: that begins on {} core(s)", submitted.task, cores));
}

void EarlyFollowup::ask(Ask what) {
  if (child_ <= 0 || asked_ >= what) return;
  asked_ = what;
  ::kill(child_, what == Ask::stop ? SIGTERM : SIGINT);
}

bool EarlyFollowup::ended() {
  if (child_ <= 0) return true;
  int status = 0;
  if (::waitpid(child_, &status, WNOHANG) != child_) return false;
  // An interrupted study goes on later. The FollowupQueue evaluates and reports any other end.
  if (exit_status(status) != static_cast<int>(ExitCode::interrupted)) settled_.insert(running_);
  child_ = 0;
  running_.clear();
  return true;
}

void add_submitted(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<RunOptions>();
  const auto id = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("submitted", "run a study that a task submitted (started by wflow run)");
  command->group("");
  command->add_option("campaign", options->campaign)->required();
  command->add_option("id", *id)->required();
  add_common(*command, *options);
  command->callback([options, id, &chosen] {
    chosen = [options, id] {
      const auto directory = engine::submitted_directory(options->campaign, *id);
      const bool made = directory && is_campaign(*directory);
      const specs::Plan plan = engine::begin_submitted(options->campaign, *id);
      return coordinate(plan, *options, made);
    };
  });
}

}  // namespace wflow::cli
