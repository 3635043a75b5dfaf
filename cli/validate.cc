// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "cli/commands.h"
#include "specs/describe.h"
#include "specs/workspace.h"

namespace wflow::cli {

namespace {

struct ValidateOptions {
  std::string study;
  specs::ReadOptions read;
};

specs::Plan plan_of(const ValidateOptions& options) {
  specs::StudyAndWarnings read = specs::read_study(options.study, options.read);
  for (const auto& warning : read.warnings) fmt::print(stderr, "{}\n", warning.to_string());
  const auto directory = specs::campaign_directory(read.study, specs::kNoTimestamp);
  return specs::Plan(std::move(read.study), directory);
}

int validate(const ValidateOptions& options) {
  const specs::Plan plan = plan_of(options);
  fmt::print("{}: valid; {} steps, {} tasks\n", options.study, plan.study().steps.size(),
             text::format_count(plan.element_count()));
  return 0;
}

int show_plan(const ValidateOptions& options) {
  fmt::print("{}", specs::describe(plan_of(options)));
  return 0;
}

void add(CLI::App& app, Command& chosen, const char* name, const char* description, const char* footer,
         int (*action)(const ValidateOptions&)) {
  const auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand(name, description);
  command->footer(footer);
  command->add_option("study", options->study, "the study (YAML)")->required();
  command->add_option("--vars", options->read.variables, "NAME=value: overrides a variable of the study")
      ->take_all();
  command->add_option("--samplesfile", options->read.samples_file,
                      "use this table of samples instead of the study's");
  command->add_flag("--strict", options->read.strict, "unknown keys are errors in Merlin's files too");
  command->callback([options, action, &chosen] { chosen = [options, action] { return action(*options); }; });
}

}  // namespace

void add_validate(CLI::App& app, Command& chosen) {
  add(app, chosen, "validate", "check a study without making anything",
      "Every error with file, line and column. Exit code 0 or 3.\nExample:\n  wflow validate cosmoflow.yaml",
      validate);
}

void add_plan(CLI::App& app, Command& chosen) {
  add(app, chosen, "plan", "show what a study would run",
      "Steps, task counts, what waits for what, first and last command.\nExample:\n  wflow plan "
      "cosmoflow.yaml --vars N=10",
      show_plan);
}

}  // namespace wflow::cli
