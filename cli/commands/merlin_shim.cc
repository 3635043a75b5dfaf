// SPDX-License-Identifier: Apache-2.0
// Merlin's command line. A step calls it because studies that start themselves again were written for it: the
// program `merlin` in a task's PATH (.wflow/bin/merlin of its campaign) is this. A user's is that of
// `wflow install-shims`; outside of tasks the commands are those of merlin_front.cc.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/version.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/commands/fronts.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"
#include "specs/study/study.h"

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
  std::string dump;                 // --dump of status
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

int run(const MerlinOptions& options) {
  if (!in_task()) return front::run({options.target, options.read, options.local, options.dry});
  if (options.local || options.dry) {
    std::vector<std::string> words = {"run", options.target, "--local", "--soft-fail-ok", "--as", "merlin"};
    if (options.dry) words.emplace_back("--dry");
    if (!options.dry) add_cores(words);
    add_read_words(words, options.read);
    become_wflow(std::move(words));
  }
  const fs::path campaign = own_campaign();
  const specs::StudyAndWarnings read = specs::read_study(options.target, options.read);
  for (const auto& warning : read.warnings) fmt::print(stderr, "{}\n", warning.to_string());
  append_event(engine::submit_study(campaign, read.study));
  fmt::print("{} is to run after this campaign\n", read.study.name);
  return 0;
}

int restart(const MerlinOptions& options) {
  if (!in_task()) return front::restart(options.target, options.local);
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
  if (!in_task()) {
    if (!options.chosen.empty())
      throw Error(ExitCode::usage,
                  "merlin stop-workers: a campaign's workers serve all its steps and end together; wflow "
                  "cancel --step "
                  "NAME gives up the tasks of one step");
    return front::stop_workers(options.spec);
  }
  // Without a coordinator there is nothing to stop: no task starts.
  engine::Client(own_campaign()).command(engine::wire::DrainRequest{});
  fmt::print("the campaign ends after what runs\n");
  return 0;
}

int info() {
  fmt::print("wflow {} in the place of merlin\n", kVersion);
  if (in_task()) fmt::print("campaign: {}\n", own_campaign().string());
  return 0;
}

// Becomes `wflow verb [CAMPAIGN] ...`. A task means its own campaign unless it names another one.
int show(const MerlinOptions& options, std::vector<std::string> words) {
  if (!options.dump.empty())
    throw Error(ExitCode::usage, fmt::format("merlin --dump: wflow {} --{} > {}", words.front(),
                                             options.dump.ends_with(".json") ? "json" : "csv", options.dump));
  const std::string& named = options.spec.empty() ? options.target : options.spec;
  const bool own = in_task() && (named.empty() || fs::is_regular_file(named));
  const std::string campaign = own ? own_campaign().string() : named;
  if (!campaign.empty()) words.insert(words.begin() + 1, campaign);
  become_wflow(std::move(words));
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
  if (!in_task() || !fs::is_regular_file(options.target)) return front::monitor(options.target);
  const fs::path study = absolute_path(options.target).lexically_normal();
  constexpr std::chrono::milliseconds kLook{250};
  for (;; std::this_thread::sleep_for(kLook)) {
    const auto campaign = submitted_campaign(study);
    if (campaign && has_ended(*campaign)) return 0;
  }
}

int example(const MerlinOptions& options) {
  if (options.target.empty() || options.target == "list") become_wflow({"init"});
  become_wflow({"init", options.target, options.path.empty() ? "." : options.path});
}

int nothing(const std::string& command) {
  return in_task() ? 0 : front::nothing(command);
}

void add_spec(CLI::App& command, MerlinOptions& options) {
  command.add_option("specification", options.target)->required();
}

void add_variables(CLI::App& command, std::vector<std::string>& variables) {
  command.add_option("--vars", variables)->expected(1, -1);
}

class Commands {
 public:
  Commands(CLI::App& app, MerlinOptions& options, Command& chosen)
      : app_(app), options_(options), chosen_(chosen) {}

  void add_all() {
    add_run();
    add_workers();
    add_views();
    add("info", info);
    CLI::App* example_command = add("example", [this] { return example(options_); });
    example_command->add_option("workflow", options_.target);
    example_command->add_option("-p,--path", options_.path);
    for (const char* name : {"config", "server"}) add(name, [name] { return nothing(name); })->allow_extras();
    add("database", [] { return answer_other_word("database"), 0; })->allow_extras();
  }

 private:
  CLI::App* add(const std::string& name, const Command& action) {
    CLI::App* command = app_.add_subcommand(name);
    command->callback([this, action] { chosen_ = action; });
    return command;
  }

  void add_run() {
    CLI::App* study = add("run", [this] { return run(options_); });
    add_spec(*study, options_);
    add_variables(*study, options_.read.variables);
    study->add_option("--samplesfile", options_.read.samples_file);
    study->add_option("--pgen", options_.read.generator);
    study->add_option("--pargs", options_.read.generator_arguments)->take_all();
    study->add_flag("--local", options_.local);
    study->add_flag("--dry", options_.dry);
    study->add_flag("--no-errors");
    CLI::App* again = add("restart", [this] { return restart(options_); });
    add_spec(*again, options_);
    again->add_flag("--local", options_.local);
  }

  void add_workers() {
    CLI::App* stop = add("stop-workers", [this] { return stop_workers(options_); });
    stop->add_option("--spec", options_.spec);
    stop->add_option("--task_server", options_.ignored);
    for (const char* name : {"--queues", "--workers"})
      stop->add_option(name, options_.chosen)->expected(1, -1);
    // The campaign starts its own workers, and wflow has no queue of tasks.
    for (const char* name : {"run-workers", "purge"}) {
      CLI::App* command = add(name, [name] { return nothing(name); });
      add_spec(*command, options_);
      add_variables(*command, options_.ignored_list);
      command->add_option("--steps", options_.ignored_list)->expected(1, -1);
      command->add_option("--worker-args", options_.ignored);
      for (const char* flag : {"-f,--force", "--echo", "--disable-logs"}) command->add_flag(flag);
    }
  }

  CLI::App* add_view(const std::string& name, std::vector<std::string> words) {
    CLI::App* command = add(name, [this, words = std::move(words)] { return show(options_, words); });
    command->add_option("specification", options_.target);
    command->add_option("--spec", options_.spec);
    command->add_option("--dump", options_.dump);
    for (const char* option : {"--task_server", "-o,--output-path"})
      command->add_option(option, options_.ignored);
    return command;
  }

  void add_views() {
    CLI::App* status = add_view("status", {"status"});
    for (const char* flag : {"--cb-help", "--no-prompts"}) status->add_flag(flag);
    CLI::App* tasks = add_view("detailed-status", {"tasks"});
    for (const char* flag : {"--disable-pager", "--disable-theme", "--no-prompts"}) tasks->add_flag(flag);
    add_view("query-workers", {"workers"});
    add_view("queue-info", {"status", "--brief"});
    CLI::App* wait = add("monitor", [this] { return monitor(options_); });
    add_spec(*wait, options_);
    add_variables(*wait, options_.ignored_list);
    wait->add_option("--steps", options_.ignored_list)->expected(1, -1);
    for (const char* option : {"--task_server", "--sleep"}) wait->add_option(option, options_.ignored);
    wait->add_flag("--no-restart");
  }

  CLI::App& app_;
  MerlinOptions& options_;
  Command& chosen_;
};

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

std::optional<int> run_merlin(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "merlin") return std::nullopt;
  std::vector<std::string> words = without_level({argv + 2, argv + argc});
  MerlinOptions options;
  options.read.command = specs::Dialect::merlin;
  Command chosen;
  CLI::App app("merlin, as wflow has it", "merlin");
  app.set_version_flag("-v,--version", std::string("wflow ") + kVersion + " in the place of merlin");
  app.require_subcommand(1);
  Commands commands(app, options, chosen);  // its callbacks run below
  commands.add_all();
  const auto names_it = [&](const CLI::App* command) { return command->get_name() == words[0]; };
  if (!words.empty() && !words[0].starts_with('-') && app.get_subcommands(names_it).empty()) {
    throw Error(
        ExitCode::usage,
        fmt::format("wflow has no counterpart of merlin {}; merlin --help lists what there is, wflow --help "
                    "wflow's own commands",
                    words[0]));
  }
  try {
    std::reverse(words.begin(), words.end());  // the parser takes them from the end
    app.parse(words);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::usage, fmt::format("merlin: {}", error.what()));
  }
  return chosen();
}

}  // namespace wflow::cli
