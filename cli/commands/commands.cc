// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/program_file.h"
#include "base/text.h"
#include "cli/commands/fronts.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

namespace {

// Reports an unknown command: the parser itself would only say that a command is required.
void check_command(const CLI::App& app, const std::string& word) {
  if (word.empty() || word.starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return;
  answer_other_word(word);
  throw Error(ExitCode::usage, "there is no command '" + word + "'" + text::suggestion(word, names) +
                                   " (wflow --help lists the commands)");
}

// The command that the words name.
const CLI::App& asked(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

// Prints help and version through the same standard output as all other texts.
int exit_with(const CLI::App& app, const CLI::Error& request) {
  std::ostringstream out;
  const int code = app.exit(request, out, out);
  fmt::print("{}", out.str());
  return code;
}

}  // namespace

void add_commands(CLI::App& app, Command& chosen) {
  app.name("wflow");
  app.description(
      "wflow runs ensembles of simulations, turns their output into training data and trains a network on "
      "it.\n"
      "\n"
      "  wflow init                   templates to begin with\n"
      "  wflow run cosmoflow.yaml     run a study; Ctrl-C ends it so that it can go on later\n"
      "  wflow status                 the newest campaign here: what is done, what failed, what is left\n"
      "  wflow resume DIR             go on with a campaign; nothing that has finished runs again\n"
      "  wflow logs DIR simulate/12   what one task printed");
  app.set_version_flag("--version", fmt::format("wflow {}", kVersion));
  app.require_subcommand(1);
  app.fallthrough();  // --log-level and --raw may also stand behind the command
  // The environment variable also reaches the programs that this one starts.
  app.add_option_function<std::string>(
         "--log-level", [](const std::string& level) { ::setenv("WFLOW_LOG", level.c_str(), 1); },
         "what .wflow/logs keeps: trace, debug, info, warning or error (default: $WFLOW_LOG, else info)")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error"}));
  app.add_flag_function(
      "--raw", [](std::int64_t) { open_raw_output(); },
      "on a terminal, print control characters of names, cells and logs as they are (default: ^[ for an "
      "escape)");
  app.get_formatter()->column_width(32);
  app.footer(
      "Exit codes: 0 done, 1 tasks failed, 2 command line, 3 study, 4 input data, 5 system, 6 interrupted\n"
      "(resume it), 7 already running, 8 another format, 70 a defect in wflow. More: wflow help exit-codes\n"
      "Examples:\n  wflow init hello && wflow run study.yaml\n  wflow help run");
  add_init(app, chosen);
  add_validate(app, chosen);
  add_plan(app, chosen);
  add_schema(app, chosen);
  add_run(app, chosen);
  add_resume(app, chosen);
  add_extend(app, chosen);
  add_exec(app, chosen);
  add_update(app, chosen);
  add_redo(app, chosen);
  add_status(app, chosen);
  add_attach(app, chosen);
  add_top(app, chosen);
  add_tasks(app, chosen);
  add_samples(app, chosen);
  add_usage(app, chosen);
  add_report(app, chosen);
  add_metrics(app, chosen);
  add_export(app, chosen);
  add_curves(app, chosen);
  add_explain(app, chosen);
  add_logs(app, chosen);
  add_rerun(app, chosen);
  add_retry(app, chosen);
  add_cancel(app, chosen);
  add_control(app, chosen);
  add_adopt(app, chosen);
  add_allocations(app, chosen);
  add_keys(app, chosen);
  add_manage(app, chosen);
  add_delegates(app);
  add_propose(app, chosen);
  add_launch(app);
  add_submitted(app, chosen);
  add_hook(app, chosen);
  add_event(app, chosen);
  add_worker(app, chosen);
  add_coordinate(app, chosen);
  add_doctor(app, chosen);
  add_install_shims(app, chosen);
  add_help(app, chosen);
  add_completion(app, chosen);
  add_manual(app, chosen);
}

std::string tasks_text(std::uint64_t count) {
  return fmt::format("{} task{}", text::format_count(count), count == 1 ? "" : "s");
}

int run_command(int argc, char** argv) {
  open_output();
  run_delegate(argc, argv);
  if (const auto code = run_merlin(argc, argv)) return *code;
  if (const auto code = run_maestro(argc, argv)) return *code;
  if (const auto code = run_launch(argc, argv)) return *code;
  CLI::App app;
  Command chosen;
  add_commands(app, chosen);
  if (complete(app, argc, argv)) return 0;
  take_exec_words(app, argc, argv);
  check_command(app, argc > 1 ? argv[1] : "");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& request) {
    return exit_with(app, request);
  } catch (const CLI::CallForVersion& request) {
    return exit_with(app, request);
  } catch (const CLI::ExtrasError&) {
    refuse_words(asked(app), app.remaining(true));
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = asked(app);
    throw Error(ExitCode::usage, fmt::format("{} (wflow {}--help lists the {})", error.what(),
                                             &command == &app ? "" : command.get_name() + " ",
                                             &command == &app ? "commands" : "options"));
  }
  return chosen ? chosen() : 0;
}

}  // namespace wflow::cli
