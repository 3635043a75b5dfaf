// SPDX-License-Identifier: Apache-2.0
// Merlin's command line. A step calls it because studies that start themselves again were written for it: the
// program `merlin` in a task's PATH (.wflow/bin/merlin of its campaign) is this. A user's is that of
// `wflow install-shims`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/text.h"
#include "cli/campaign/adoption.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/fronts.h"
#include "cli/commands/run.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

struct MerlinOptions {
  std::string target;  // a study, or a campaign's directory
  specs::ReadOptions read;
  bool local = false;
  bool dry = false;
  std::string spec;                 // --spec of stop-workers and the like
  std::string path;                 // --path of example
  std::vector<std::string> chosen;  // workers, queues, steps: words that have no counterpart
  std::string ignored;
  std::vector<std::string> ignored_list;
};

bool in_task() {
  return !environment_value("WFLOW_CAMPAIGN").empty();
}

fs::path own_campaign() {
  return environment_value("WFLOW_CAMPAIGN");
}

// Adds the option that limits a run in the foreground to the cores of this task.
void add_cores(std::vector<std::string>& words) {
  const std::string cores = environment_value("WFLOW_CORES");
  words.insert(words.end(), {"--slots", cores.empty() ? "1" : cores});
}

// In the background, unless --local or --dry says otherwise.
[[noreturn]] void run_now(const MerlinOptions& options) {
  std::vector<std::string> words = {"run", options.target, "--soft-fail-ok", "--as", "merlin"};
  if (options.local || in_task()) words.emplace_back("--local");
  if (options.dry) words.emplace_back("--dry");
  if (!options.dry && in_task()) add_cores(words);
  if (!options.local && !options.dry) words.emplace_back("--detach");
  add_read_words(words, options.read);
  become_wflow(std::move(words));
}

int run(const MerlinOptions& options) {
  if (!in_task() || options.local || options.dry) run_now(options);
  const specs::StudyAndWarnings read = specs::read_study(options.target, options.read);
  for (const auto& warning : read.warnings) fmt::print(stderr, "{}\n", warning.to_string());
  append_event(engine::submit_study(own_campaign(), read.study));
  fmt::print("{} is to run after this campaign\n", read.study.name);
  return 0;
}

// Adopts a workspace of Merlin first.
int restart_workspace(const std::string& workspace, bool local) {
  if (maker_of(workspace)) {
    const Adopted adopted = adopt(workspace, {});
    remember_campaign(adopted.campaign);
    fmt::print("{} is a campaign now: {} done, {} failed, {} left\n", adopted.campaign.string(),
               text::format_count(adopted.done), text::format_count(adopted.failed),
               text::format_count(adopted.left));
  }
  const std::filesystem::path campaign = find_campaign(workspace);
  const bool failed = engine::Client(campaign).retryable({}) > 0;
  std::vector<std::string> words = {failed ? "retry" : "resume", campaign.string(), "--soft-fail-ok"};
  if (!local) words.emplace_back("--detach");
  become_wflow(std::move(words));
}

int restart(const MerlinOptions& options) {
  if (!in_task()) return restart_workspace(options.target, options.local);
  const fs::path directory = find_campaign(options.target);
  if (options.local) {
    std::vector<std::string> words = {"retry", directory.string(), "--soft-fail-ok"};
    add_cores(words);
    become_wflow(std::move(words));
  }
  append_event(engine::submit_restart(directory));
  fmt::print("{} is to go on after this campaign\n", directory.string());
  return 0;
}

int stop_workers(const MerlinOptions& options) {
  if (!in_task() && !options.chosen.empty())
    throw Error(ExitCode::usage,
                "merlin stop-workers: a campaign's workers serve all its steps and end together; wflow "
                "cancel --step NAME gives up the tasks of one step");
  const fs::path campaign = in_task() ? own_campaign() : working_campaign(find_campaign(options.spec));
  // Without a coordinator there is nothing to stop: no task starts.
  const bool live = engine::Client(campaign).command(engine::wire::DrainRequest{}).has_value();
  if (in_task()) {
    fmt::print("the campaign ends after what runs\n");
  } else if (live) {
    fmt::print("{} ends after what runs; go on with: wflow resume\n", campaign.string());
  } else {
    fmt::print("no workers: nothing runs {}\n", campaign.string());
  }
  return 0;
}

int info() {
  fmt::print("wflow {} in the place of merlin\n", kVersion);
  if (in_task()) fmt::print("campaign: {}\n", own_campaign().string());
  return 0;
}

// The directory of the newest submission of this study; empty before it has begun.
std::optional<fs::path> submitted_campaign(const fs::path& study) {
  std::string newest;
  for (const engine::Submitted& one : engine::submitted_studies(own_campaign())) {
    if (one.spec == study) newest = one.id;
  }
  if (newest.empty())
    throw Error(ExitCode::usage,
                fmt::format("merlin monitor: this campaign has submitted no {}", study.string()));
  return engine::submitted_directory(own_campaign(), newest);
}

bool has_ended(const fs::path& campaign) {
  try {
    const engine::CampaignStatus status = engine::campaign_status(campaign);
    return is_at_rest(status.state) && status.ended() == status.elements();
  } catch (const Error&) {  // the campaign is being created, or its coordinator is busy
    return false;
  }
}

// In a task: waits for a study that it has submitted.
int monitor(const MerlinOptions& options) {
  if (!in_task() || !fs::is_regular_file(options.target)) {
    const int code = follow(find_campaign(options.target), false, false);
    return code == static_cast<int>(ExitCode::tasks_failed) ? 0 : code;
  }
  const fs::path study = absolute_path(options.target).lexically_normal();
  constexpr std::chrono::milliseconds kLook{250};
  for (;; std::this_thread::sleep_for(kLook)) {
    const auto campaign = submitted_campaign(study);
    if (campaign && has_ended(*campaign)) return 0;
  }
}

// Merlin's examples come with Merlin, and wflow's templates of the same names are other studies.
int example(const MerlinOptions& options) {
  if (options.target.empty() || options.target == "list") {
    fmt::print("Merlin's examples come with Merlin. wflow has templates of its own: wflow init lists them\n");
    return 0;
  }
  throw Error(
      ExitCode::usage,
      fmt::format("merlin example {}: Merlin's examples come with Merlin; wflow init lists templates of "
                  "wflow's own",
                  options.target));
}

// A command that has no effect here: one line says why to a user.
int nothing(const std::string& command) {
  if (!in_task()) fmt::print(stderr, "merlin {}: {}\n", command, instead_of(command));
  return 0;
}

void add_spec(CLI::App& command, MerlinOptions& options) {
  command.add_option("specification", options.target)->required();
}

void add_variables(CLI::App& command, std::vector<std::string>& variables) {
  command.add_option("--vars", variables)->expected(1, -1);
}

void add_merlin_run(const AddCommand& add, MerlinOptions& options) {
  CLI::App* study = add("run", [&options] { return run(options); });
  add_spec(*study, options);
  add_variables(*study, options.read.variables);
  study->add_option("--samplesfile", options.read.samples_file);
  study->add_option("--pgen", options.read.generator);
  study->add_option("--pargs", options.read.generator_arguments)->take_all();
  study->add_flag("--local", options.local);
  study->add_flag("--dry", options.dry);
  study->add_flag("--no-errors");
  CLI::App* again = add("restart", [&options] { return restart(options); });
  add_spec(*again, options);
  again->add_flag("--local", options.local);
}

void add_merlin_workers(const AddCommand& add, MerlinOptions& options) {
  CLI::App* stop = add("stop-workers", [&options] { return stop_workers(options); });
  stop->add_option("--spec", options.spec);
  stop->add_option("--task_server", options.ignored);
  for (const char* name : {"--queues", "--workers"}) stop->add_option(name, options.chosen)->expected(1, -1);
  // The campaign starts its own workers, and wflow has no queue of tasks.
  for (const char* name : {"run-workers", "purge"}) {
    CLI::App* command = add(name, [name] { return nothing(name); });
    add_spec(*command, options);
    add_variables(*command, options.ignored_list);
    command->add_option("--steps", options.ignored_list)->expected(1, -1);
    command->add_option("--worker-args", options.ignored);
    for (const char* flag : {"-f,--force", "--echo", "--disable-logs"}) command->add_flag(flag);
  }
}

void add_merlin_monitor(const AddCommand& add, MerlinOptions& options) {
  CLI::App* wait = add("monitor", [&options] { return monitor(options); });
  add_spec(*wait, options);
  add_variables(*wait, options.ignored_list);
  wait->add_option("--steps", options.ignored_list)->expected(1, -1);
  for (const char* option : {"--task_server", "--sleep"}) wait->add_option(option, options.ignored);
  wait->add_flag("--no-restart");
}

void add_merlin_others(const AddCommand& add, MerlinOptions& options) {
  add("info", info);
  CLI::App* command = add("example", [&options] { return example(options); });
  command->add_option("workflow", options.target);
  command->add_option("-p,--path", options.path);
  for (const char* name : {"config", "server"}) add(name, [name] { return nothing(name); })->allow_extras();
  add("database", [] { return answer_other_word("database"), 0; })->allow_extras();
}

// -lvl LEVEL has one dash and several letters, as no other option.
std::vector<std::string> without_level(const std::vector<std::string>& words) {
  std::vector<std::string> left;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "-lvl" || words[i] == "--level") {
      ++i;
    } else {
      left.push_back(words[i]);
    }
  }
  return left;
}

}  // namespace

std::string merlins_campaign(const std::string& named) {
  const bool own = in_task() && (named.empty() || fs::is_regular_file(named));
  return own ? own_campaign().string() : named;
}

std::optional<int> run_merlin(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "merlin") return std::nullopt;
  MerlinOptions options;
  options.read.command = specs::Dialect::merlin;
  return run_front("merlin", without_level({argv + 2, argv + argc}), [&](const AddCommand& add) {
    for (const auto add_some : {add_merlin_run, add_merlin_workers, add_merlin_monitor, add_merlin_others})
      add_some(add, options);
    add_merlin_views(add);
  });
}

}  // namespace wflow::cli
