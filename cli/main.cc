// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/fronts.h"
#include "cli/view/terminal.h"

namespace {

// Reports an unknown command: the parser itself would only say that a command is required.
void check_command(const CLI::App& app, const std::string& word) {
  if (word.empty() || word.starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return;
  wflow::cli::answer_other_word(word);
  throw wflow::Error(wflow::ExitCode::usage, "there is no command '" + word + "'" +
                                                 wflow::text::suggestion(word, names) +
                                                 " (wflow --help lists the commands)");
}

// Prints help and version through the same standard output as all other texts.
int exit_with(const CLI::App& app, const CLI::Error& request) {
  std::ostringstream out;
  const int code = app.exit(request, out, out);
  fmt::print("{}", out.str());
  return code;
}

int body(int argc, char** argv) {
  using namespace wflow;
  cli::open_output();
  cli::run_delegate(argc, argv);
  if (const auto code = cli::run_merlin(argc, argv)) return *code;
  if (const auto code = cli::run_maestro(argc, argv)) return *code;
  if (const auto code = cli::run_launch(argc, argv)) return *code;
  CLI::App app;
  cli::Command chosen;
  cli::add_commands(app, chosen);
  if (cli::complete(app, argc, argv)) return 0;
  cli::take_exec_words(app, argc, argv);
  check_command(app, argc > 1 ? argv[1] : "");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& request) {
    return exit_with(app, request);
  } catch (const CLI::CallForVersion& request) {
    return exit_with(app, request);
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::usage, std::string(error.what()) + " (wflow --help lists the commands)");
  }
  return chosen ? chosen() : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return wflow::run_main("wflow", body, argc, argv);
}
