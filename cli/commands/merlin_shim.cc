// SPDX-License-Identifier: Apache-2.0
// `merlin` as a step calls it: studies that start themselves again were written for Merlin's command line.
// The program of that name in a task's PATH (.wflow/bin/merlin of its campaign) calls this.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/version.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
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
  std::string ignored;
  std::vector<std::string> ignored_list;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

fs::path own_campaign() {
  const fs::path campaign = variable("WFLOW_CAMPAIGN");
  if (campaign.empty()) {
    throw Error(ExitCode::usage,
                "wflow merlin is for tasks of a campaign (WFLOW_CAMPAIGN is not set); use wflow run");
  }
  return campaign;
}

[[noreturn]] void become_wflow(std::vector<std::string> words) {
  words.insert(words.begin(), sibling_program("wflow"));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(argv[0], argv.data());
  throw system_error(errno, "cannot start " + words[0]);
}

// In the foreground, on the cores of this task.
void add_cores(std::vector<std::string>& words) {
  const std::string cores = variable("WFLOW_CORES");
  words.insert(words.end(), {"--slots", cores.empty() ? "1" : cores});
}

int run(const MerlinOptions& options) {
  if (options.local || options.dry) {
    std::vector<std::string> words = {"run", options.target, "--local", "--soft-fail-ok", "--as", "merlin"};
    if (options.dry) words.emplace_back("--dry");
    if (!options.read.samples_file.empty())
      words.insert(words.end(), {"--samplesfile", options.read.samples_file});
    if (!options.read.generator.empty()) words.insert(words.end(), {"--pgen", options.read.generator});
    for (const std::string& argument : options.read.generator_arguments)
      words.insert(words.end(), {"--pargs", argument});
    if (!options.dry) add_cores(words);
    if (!options.read.variables.empty()) {
      words.emplace_back("--vars");
      words.insert(words.end(), options.read.variables.begin(), options.read.variables.end());
    }
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
  const fs::path directory = find_campaign(options.target);
  if (options.local) {
    std::vector<std::string> words = {"retry", directory.string(), "--soft-fail-ok"};
    add_cores(words);
    become_wflow(std::move(words));
  }
  own_campaign();
  append_event(engine::submit_restart(directory));
  fmt::print("{} is to go on after this campaign\n", directory.string());
  return 0;
}

int stop_workers() {
  const fs::path campaign = own_campaign();
  // Without a coordinator there is nothing to stop: it starts no task.
  engine::Client(campaign).command(engine::wire::DrainRequest{});
  fmt::print("the campaign ends after what runs\n");
  return 0;
}

int info() {
  fmt::print("wflow {} in the place of merlin\ncampaign: {}\n", kVersion, own_campaign().string());
  return 0;
}

int nothing() {
  return 0;
}

void add_spec(CLI::App& command, MerlinOptions& options) {
  command.add_option("specification", options.target)->required();
}

void add_variables(CLI::App& command, std::vector<std::string>& variables) {
  command.add_option("--vars", variables)->expected(1, -1);
}

void add_commands(CLI::App& app, MerlinOptions& options, Command& chosen) {
  const auto add = [&](const char* name, Command action) {
    CLI::App* command = app.add_subcommand(name);
    command->callback([&chosen, action] { chosen = action; });
    return command;
  };
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
  CLI::App* stop = add("stop-workers", stop_workers);
  for (const char* name : {"--spec", "--task_server"}) stop->add_option(name, options.ignored);
  for (const char* name : {"--queues", "--workers"})
    stop->add_option(name, options.ignored_list)->expected(1, -1);
  add("info", info);
  // The workers are the campaign's, and nothing waits in a queue.
  for (const char* name : {"run-workers", "purge"}) {
    CLI::App* command = add(name, nothing);
    add_spec(*command, options);
    add_variables(*command, options.ignored_list);
    command->add_option("--steps", options.ignored_list)->expected(1, -1);
    command->add_option("--worker-args", options.ignored);
    for (const char* flag : {"-f,--force", "--echo", "--disable-logs"}) command->add_flag(flag);
  }
  CLI::App* status = add("status", [&options] {
    become_wflow(options.target.empty() || fs::is_regular_file(options.target)
                     ? std::vector<std::string>{"status", own_campaign().string()}
                     : std::vector<std::string>{"status", options.target});
    return 0;
  });
  status->add_option("specification", options.target);
  for (const char* name : {"--task_server", "-o"}) status->add_option(name, options.ignored);
  for (const char* flag : {"--cb-help", "--no-prompts"}) status->add_flag(flag);
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

std::optional<int> run_merlin(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "merlin") return std::nullopt;
  std::vector<std::string> words = without_level({argv + 2, argv + argc});
  MerlinOptions options;
  options.read.command = specs::Dialect::merlin;
  Command chosen;
  CLI::App app("merlin, as wflow has it in tasks", "merlin");
  app.set_version_flag("-v,--version", std::string("wflow ") + kVersion + " in the place of merlin");
  app.require_subcommand(1);
  add_commands(app, options, chosen);
  const auto names_it = [&](const CLI::App* command) { return command->get_name() == words[0]; };
  if (!words.empty() && !words[0].starts_with('-') && app.get_subcommands(names_it).empty()) {
    throw Error(
        ExitCode::usage,
        fmt::format("merlin {} is not there in tasks of wflow; run, restart, stop-workers, status and "
                    "info are, outside of tasks wflow --help",
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
