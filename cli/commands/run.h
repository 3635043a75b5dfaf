// SPDX-License-Identifier: Apache-2.0
// Coordinating a campaign from this process: for run, resume and retry.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/batch/allocation.h"
#include "engine/coordinate/machine.h"
#include "engine/monitor/status.h"
#include "engine/wire/requests.h"
#include "specs/plan/plan.h"
#include "specs/study/study.h"

namespace wflow::cli {

struct RunOptions {
  std::string study;
  std::string campaign;
  specs::ReadOptions read;
  int slots = 0;
  std::string time_limit;
  bool quiet = false;
  bool dry = false;
  bool preview = false;         // -n: say what would happen, and change nothing
  bool fresh = false;           // run --new
  bool update = false;          // run --update
  bool local = false;           // even if the study asks for a scheduler
  std::uint64_t max_range = 0;  // set by benchmarks: tasks a lease at most
  bool listen = false;          // for workers of other hosts
  double fence_s = 0;           // set by tests
  bool detach = false;
  bool keep_going = false;
  std::string until;          // a step; empty: all
  bool soft_fail_ok = false;  // tasks that failed softly leave exit code 0, as with Merlin
  bool json = false;
  std::optional<engine::wire::RetryRequest> retry;
  engine::RunAgain run_again;
  std::optional<engine::batch::AllocationAround> around;  // set by coordinate()
  engine::OwnAllocation
      own_allocation;  // set for a coordinator in an allocation, and for the process that submits it
  std::function<void(const engine::CampaignStatus&)> look;  // called with each status of the campaign
  bool observed = true;                                     // hooks run and metrics are written
  bool more_follows = false;  // the caller goes on with more tasks: the end of these is not the campaign's
  std::optional<engine::wire::Request> first;  // for a campaign that no process coordinates
  bool silent() const { return quiet || json; }
};

// Options that run, resume and retry share.
void add_common(CLI::App& command, RunOptions& options);

// The only study in the current directory. Error{usage} if there is none, or more than one.
std::string study_here();

// The command run: reads the study, creates its campaign and coordinates it. Returns the exit code.
int run_study(RunOptions options);

// Throws if a program beside wflow that the study's tasks need is missing: before the first task needs it.
void require_programs(const specs::Study& study);
// Throws if a scheduler can't be used: before the campaign is created.
void require_schedulers(const specs::Study& study, const RunOptions& options);

// ---- resume.cc

// Goes on with a campaign as wflow resume does, with `update` as wflow resume --update -y. The exit code.
int go_on_with(const std::filesystem::path& campaign, const RunOptions& run, bool update);
// If the study's file or a source of it has changed: offers on a terminal to take the changes in, and says so
// elsewhere. The plan to go on with if they were taken in.
std::optional<specs::Plan> offer_changes(const specs::Plan& plan, RunOptions& run);

// Creates the campaign of a study that was just read. Either it can be resumed, or nothing is left of it.
specs::Plan create(const specs::StudyAndWarnings& read);

// --time-limit in seconds, 0 without one. Error{usage} for an invalid time.
double limit_of(const RunOptions& options);

// Runs the campaign, and the campaigns that follow on it, to the end and shows them. With --detach, starts a
// process that does this.
int coordinate(const specs::Plan& plan, const RunOptions& options, bool resumed);

struct RunEnd {
  int code = 0;
  bool handed_over = false;  // another process goes on
};
// Coordinates from this process, to the end or until it hands over.
RunEnd run_here(const specs::Plan& plan, const RunOptions& options, bool resumed);

// in_allocation.cc: `batch: {coordinator: in_allocation}`. Submits the first allocation and follows the
// coordinator that starts in it; with --detach it does not follow.
bool lives_in_allocations(const specs::Plan& plan, const RunOptions& options);
int coordinate_in_allocations(const specs::Plan& plan, const RunOptions& options, bool resumed);
// For wflow attach.
int attach_in_allocations(const specs::Plan& plan, bool quiet, bool json);
// Coordinates such a campaign between two allocations for the time of a command.
// False: it is not such a campaign, it was ended on purpose, or another process coordinates it.
bool command_between_allocations(const specs::Plan& plan, const engine::wire::Request& request);

// attach.cc: shows a campaign that another process runs, until its end. Ctrl-C ends only the display.
int follow(const std::filesystem::path& campaign, bool quiet, bool json);
// Goes on in a new process, which outlives the terminal. Returns true in that process, and false here once it
// coordinates.
bool detach(const std::filesystem::path& campaign);
// The exit code of the campaign together with those that follow on it.
ExitCode whole_code(const engine::CampaignStatus& status);

// rerun.cc: saves this process's variables, mode 0600, for wflow rerun.
void record_environment(const std::filesystem::path& campaign);

// How run, validate and plan read a study: --vars, --samplesfile, --pgen, --pargs, --strict and others.
void add_read_options(CLI::App& command, specs::ReadOptions& options);

// dry.cc: wflow run --dry creates a campaign with every directory and script of its tasks, and runs nothing.
// Throws Error{usage} for a plan with too many scripts.
void check_dry(const specs::Plan& plan);

int write_scripts(const specs::Plan& plan, bool quiet);

// plan_sample.cc: wflow plan --sample. Runs some tasks of the study in a temporary directory, and prints an
// estimate for the whole campaign. The directory stays if a task fails. Returns the exit code.
struct SampleOptions {
  std::uint64_t tasks = 0;  // of each step
  int slots = 0;
  bool local = false;  // even if the study asks for a scheduler
  bool json = false;
};
int sample_plan(const specs::Study& study, const SampleOptions& options);

// training_memory.cc: what wflow-train counts for the trainings of a study whose data sets are there, or were
// made by the last campaign.
struct TrainingMemory {
  struct Refusal {
    std::string training;
    std::string data;
    std::string sentence;  // of wflow-train
  };
  std::string step;
  // The memory of each grid, and the seconds of a step where the training has planned; or a sentence that
  // says what is missing.
  std::string text;
  std::vector<Refusal> refusals = {};  // of trainings whose `memory` is less than all grids need
  bool is_earlier = false;             // the data set is that of the last campaign
  nlohmann::ordered_json json = {};    // the same for programs, in place of the text
};
enum class TrainingForm { text, json };
// `all`: also trainings without `memory`, whose grid is given.
std::vector<TrainingMemory> training_memory(const specs::Plan& plan, bool all, TrainingForm form);
// Those of all trainings in one list.
nlohmann::ordered_json trainings_json(const std::vector<TrainingMemory>& trainings);

// worker.cc: the scheduler of the innermost allocation in which this process runs; empty outside of any.
std::string scheduler_around();

}  // namespace wflow::cli
