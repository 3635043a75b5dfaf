// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "engine/coordinate/coordinator.h"
#include "specs/plan/plan.h"
#include "specs/plan/workspace.h"
#include "specs/study/study.h"
#include "steps/command.h"

namespace wflow::cli {

namespace {

struct ValidateOptions {
  std::string study;
  specs::ReadOptions read;
  bool json = false;
  bool dot = false;
  bool batch = false;
  SampleOptions sample;
};

specs::Plan plan_of(const ValidateOptions& options) {
  specs::StudyAndWarnings read = specs::read_study(options.study, options.read);
  for (const auto& warning : read.warnings) fmt::print(stderr, "{}\n", warning.to_string());
  for (const std::string& doubt : specs::training_doubts(read.study))
    fmt::print(stderr, "{}: warning: {}\n", options.study, doubt);
  const auto directory = specs::campaign_directory(read.study, specs::kNoTimestamp);
  return specs::Plan(std::move(read.study), directory);
}

// The program that a step's command begins with; empty where it is not plain which one that is, or where the
// command may change PATH.
std::string first_program(const std::string& command) {
  constexpr auto kChanging = std::to_array<std::string_view>(
      {"PATH", "module", "source", "conda", "activate", "spack", "alias", "()"});
  for (const std::string_view word : kChanging) {
    if (command.find(word) != std::string::npos) return {};
  }
  const std::string_view text = text::trim(command);
  const std::string_view word = text.substr(0, text.find_first_of(" \t\n;|&<>"));
  const bool is_name = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '+' || c == '.';
  });
  return is_name && !steps::is_shell_word(word) ? std::string(word) : std::string();
}

// On this machine alone: the nodes of an allocation may have other programs.
void warn_of_missing_programs(const specs::Study& study, const std::string& file) {
  if (!engine::wanted_schedulers(study).empty() || !study.sources.empty()) return;
  for (const specs::Step& step : study.steps) {
    if (step.kind != specs::StepKind::shell || step.shell_given) continue;
    const std::string program = first_program(step.command);
    if (program.empty() || find_program(program)) continue;
    if (!std::filesystem::exists(executable_directory() + "/" + program))
      fmt::print(stderr, "{}: warning: the step '{}' begins with '{}', which is not in PATH here\n", file,
                 step.name, program);
  }
}

// A refusal is a warning where this study will make the data set again.
void report_refusals(const std::vector<TrainingMemory>& trainings, const std::string& file) {
  for (const TrainingMemory& training : trainings) {
    for (const TrainingMemory::Refusal& refusal : training.refusals) {
      const std::string sentence = fmt::format("{}: {}", refusal.training, refusal.sentence);
      if (!training.is_earlier) throw Error(ExitCode::spec, fmt::format("{}: {}", file, sentence));
      fmt::print(stderr, "{}: warning: {} (by the data set of the last campaign, {})\n", file, sentence,
                 refusal.data);
    }
  }
}

int validate(const ValidateOptions& options) {
  const specs::Plan plan = plan_of(options);
  check_walltimes(plan);
  check_nodes(plan);
  check_room(plan);
  for (const std::string& sentence : unusable_schedulers(plan.study()))
    fmt::print(stderr, "{}: warning: {}\n", options.study, sentence);
  warn_of_missing_programs(plan.study(), options.study);
  check_submissions(plan);
  const std::vector<TrainingMemory> trainings =
      training_memory(plan, false, options.json ? TrainingForm::json : TrainingForm::text);
  report_refusals(trainings, options.study);
  if (options.json) {
    nlohmann::ordered_json json = {{"valid", true},
                                   {"dialect", specs::name_of(plan.study().format.dialect)},
                                   {"dialect_reason", plan.study().format.reason},
                                   {"steps", plan.study().steps.size()},
                                   {"tasks", plan.element_count()}};
    if (!trainings.empty()) json["trainings"] = trainings_json(trainings);
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{}: valid; {} steps, {} tasks\n", options.study, plan.study().steps.size(),
             text::format_count(plan.element_count()));
  fmt::print("{}\n", specs::describe(plan.study().format));
  for (const TrainingMemory& training : trainings) fmt::print("\n{}", training.text);
  return 0;
}

int show_batch(const specs::Plan& plan, bool json) {
  check_walltimes(plan);
  check_nodes(plan);
  check_room(plan);
  const nlohmann::ordered_json rows = batch_plan(plan);
  fmt::print("{}", json ? rows.dump(2) + "\n" : batch_plan_text(rows));
  if (const auto refusal = refusal_in(rows)) throw Error(ExitCode::system, *refusal);
  return 0;
}

int show_plan(const ValidateOptions& options) {
  const specs::Plan plan = plan_of(options);
  if (options.sample.tasks > 0) {
    SampleOptions sample = options.sample;
    sample.json = options.json;
    return sample_plan(plan.study(), sample);
  }
  if (options.batch) return show_batch(plan, options.json);
  if (options.json) {
    using Json = nlohmann::ordered_json;
    Json json = specs::plan_to_json(plan);
    const auto trainings = training_memory(plan, true, TrainingForm::json);
    if (!trainings.empty()) json["trainings"] = trainings_json(trainings);
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", options.dot ? specs::plan_to_dot(plan) : specs::describe(plan) + scripts_text(plan));
  }
  if (options.json || options.dot) return 0;
  for (const TrainingMemory& training : training_memory(plan, true, TrainingForm::text)) {
    fmt::print("\n{}", training.text);
    for (const TrainingMemory::Refusal& refusal : training.refusals)
      fmt::print("refused: {}: {}\n", refusal.training, refusal.sentence);
  }
  return 0;
}

std::shared_ptr<ValidateOptions> add(CLI::App& app, Command& chosen, const char* name,
                                     const char* description, const char* footer,
                                     int (*action)(const ValidateOptions&)) {
  const auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand(name, description);
  command->footer(footer);
  command->add_option("study", options->study, "the study (YAML; default: the only one in this directory)");
  add_read_options(*command, options->read);
  command->add_flag("--json", options->json, "for programs");
  command->callback([options, action, &chosen] {
    chosen = [options, action] {
      if (options->study.empty()) options->study = study_here();
      return action(*options);
    };
  });
  return options;
}

}  // namespace

void add_validate(CLI::App& app, Command& chosen) {
  add(app, chosen, "validate", "check a study without making anything",
      "Every error with file, line and column. Exit code 0 or 3; 5 where the batch system would refuse an "
      "allocation.\nOf trainings with 'memory' or an open 'grid', it also shows the memory of each grid, if "
      "their data sets are there.\nExamples:\n  wflow validate cosmoflow.yaml",
      validate);
}

void add_plan(CLI::App& app, Command& chosen) {
  const auto options = add(
      app, chosen, "plan", "show what a study would run",
      "Steps, task counts, what waits for what, first and last command; with a batch system, what is "
      "submitted. Of trainings\nwhose data sets are there, the memory of each grid of their ranks. --sample "
      "N runs N\ntasks of each step on this machine, in a temporary directory, and "
      "prints an "
      "estimate for the whole campaign, from\nthe fastest of these tasks to the slowest one. Trainings, and "
      "steps that need them, are not part of it.\n"
      "Examples:\n  wflow plan cosmoflow.yaml --vars N=10\n  wflow plan cosmoflow.yaml --sample 3\n"
      "  wflow plan cosmoflow.yaml --batch",
      show_plan);
  app.get_subcommand("plan")
      ->add_flag("--dot", options->dot, "as a graph for Graphviz's dot")
      ->excludes("--json");
  app.get_subcommand("plan")
      ->add_option("--sample", options->sample.tasks,
                   "run so many tasks of each step, and estimate hours, memory and disk of all")
      ->check(CLI::Range(1, 100000))
      ->excludes("--dot");
  app.get_subcommand("plan")
      ->add_option("-j,--slots,--jobs,--cores", options->sample.slots,
                   "of --sample: cores that tasks may use (default: all)")
      ->check(CLI::Range(1, 100000))
      ->needs("--sample");
  app.get_subcommand("plan")
      ->add_flag("--local", options->sample.local,
                 "of --sample: run them here, also where the study asks for a batch scheduler")
      ->needs("--sample");
  app.get_subcommand("plan")
      ->add_flag("--batch", options->batch, "allocations, node-hours and when they would start")
      ->excludes("--dot")
      ->excludes("--sample");
}

}  // namespace wflow::cli
