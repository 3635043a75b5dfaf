// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/commands.h"

namespace {

// The parser's own word for an unknown command is that one is required.
void check_command(const CLI::App& app, const std::string& word) {
  if (word.empty() || word.starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return;
  throw wflow::Error(wflow::ExitCode::usage, "there is no command '" + word + "'" +
                                                 wflow::text::suggestion(word, names) +
                                                 " (wflow --help lists the commands)");
}

int body(int argc, char** argv) {
  using namespace wflow;
  cli::run_delegate(argc, argv);
  CLI::App app{
      "wflow runs ensembles of simulations, turns their output into training data and trains a network on "
      "it.\n"
      "\n"
      "  wflow run cosmoflow.yaml     run a study; Ctrl-C ends it so that it can go on later\n"
      "  wflow status                 the newest campaign here: what is done, what failed, what is left\n"
      "  wflow resume DIR             go on with a campaign; nothing that has finished runs again\n"
      "  wflow logs DIR simulate/12   what one task printed"};
  app.set_version_flag("--version", std::string("wflow ") + kVersion);
  app.require_subcommand(1);
  app.get_formatter()->column_width(32);
  app.footer(
      "Exit codes: 0 done, 1 tasks failed, 2 command line, 3 study, 4 input data, 5 system, 6 interrupted\n"
      "(resume it), 7 already running, 8 newer format, 70 a defect in wflow.");
  cli::Command chosen;
  cli::add_run(app, chosen);
  cli::add_resume(app, chosen);
  cli::add_status(app, chosen);
  cli::add_attach(app, chosen);
  cli::add_tasks(app, chosen);
  cli::add_explain(app, chosen);
  cli::add_retry(app, chosen);
  cli::add_cancel(app, chosen);
  cli::add_control(app, chosen);
  cli::add_manage(app, chosen);
  cli::add_logs(app, chosen);
  cli::add_validate(app, chosen);
  cli::add_plan(app, chosen);
  cli::add_schema(app, chosen);
  cli::add_delegates(app);
  cli::add_worker(app, chosen);
  cli::add_doctor(app, chosen);
  check_command(app, argc > 1 ? argv[1] : "");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& request) {
    return app.exit(request);
  } catch (const CLI::CallForVersion& request) {
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::usage, std::string(error.what()) + " (wflow --help lists the commands)");
  }
  return chosen ? chosen() : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return wflow::run_main("wflow", body, argc, argv);
}
