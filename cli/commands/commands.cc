// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/program_file.h"
#include "base/text.h"
#include "cli/commands/fronts.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

namespace {

// The commands that a function adds, in the order in which --help lists all.
struct Commands {
  const char* names;  // words; none where a command reads the definitions of all
  void (*add)(CLI::App& app, Command& chosen);

  bool have(std::string_view word) const {
    const std::vector<std::string> known = text::split(names, ' ');
    return !word.empty() && std::ranges::find(known, word) != known.end();
  }
};

constexpr Commands kCommands[] = {
    {"init", add_init},
    {"validate", add_validate},
    {"plan", add_plan},
    {"schema", add_schema},
    {"run", add_run},
    {"resume", add_resume},
    {"extend", add_extend},
    {"exec", add_exec},
    {"diff history", add_update},
    {"redo", add_redo},
    {"status", add_status},
    {"attach", add_attach},
    {"top", add_top},
    {"tasks", add_tasks},
    {"samples", add_samples},
    {"usage", add_usage},
    {"report", add_report},
    {"metrics", add_metrics},
    {"export", add_export},
    {"curves", add_curves},
    {"explain", add_explain},
    {"logs", add_logs},
    {"rerun", add_rerun},
    {"retry", add_retry},
    {"cancel", add_cancel},
    {"pause unpause drain stop", add_control},
    {"adopt", add_adopt},
    {"allocations", add_allocations},
    {"keys", add_keys},
    {"ls workers rm clean snapshot", add_manage},
    {"convert shards train predict analyze infer", [](CLI::App& app, Command&) { add_delegates(app); }},
    {"propose", add_propose},
    {"launch", [](CLI::App& app, Command&) { add_launch(app); }},
    {"submitted", add_submitted},
    {"hook", add_hook},
    {"event", add_event},
    {"worker", add_worker},
    {"coordinate", add_coordinate},
    {"doctor", add_doctor},
    {"install-shims", add_install_shims},
    {"", add_help},
    {"completion", add_completion},
    {"", add_manual},
};

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

void add_commands(CLI::App& app, Command& chosen, std::string_view word) {
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
  const auto has_it = [&](const Commands& commands) { return commands.have(word); };
  const bool alone = std::ranges::any_of(kCommands, has_it);
  for (const Commands& commands : kCommands)
    if (!alone || has_it(commands)) commands.add(app, chosen);
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
  // Most of a short command's own memory is the definitions of commands; it needs those of one.
  add_commands(app, chosen, argc > 1 ? argv[1] : "");
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
