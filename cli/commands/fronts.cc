// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/fronts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "base/program_file.h"

namespace wflow::cli {

namespace {

[[noreturn]] void refuse_command(const std::string& program, const std::string& word) {
  throw Error(ExitCode::usage, fmt::format("wflow has no counterpart of {0} {1}; {0} --help lists what "
                                           "there is, wflow --help wflow's own commands",
                                           program, word));
}

}  // namespace

void become_wflow(std::vector<std::string> words) {
  words.insert(words.begin(), sibling_program("wflow"));
  become_program(std::move(words));
}

void add_read_words(std::vector<std::string>& words, const specs::ReadOptions& read) {
  if (!read.samples_file.empty()) words.insert(words.end(), {"--samplesfile", read.samples_file});
  if (!read.generator.empty()) words.insert(words.end(), {"--pgen", read.generator});
  for (const std::string& argument : read.generator_arguments)
    words.insert(words.end(), {"--pargs", argument});
  if (read.variables.empty()) return;
  words.emplace_back("--vars");
  words.insert(words.end(), read.variables.begin(), read.variables.end());
}

int run_front(const std::string& program, std::vector<std::string> words,
              const std::function<void(const AddCommand& add)>& add_all) {
  Command chosen;
  CLI::App app(program + ", as wflow has it", program);
  app.set_version_flag("-v,--version", fmt::format("wflow {} in the place of {}", kVersion, program));
  app.require_subcommand(1);
  add_all([&](const std::string& name, const Command& action) {
    CLI::App* command = app.add_subcommand(name);
    command->callback([&chosen, action] { chosen = action; });
    return command;
  });
  const auto named = [&](const CLI::App* command) { return command->get_name() == words[0]; };
  if (!words.empty() && !words[0].starts_with('-') && app.get_subcommands(named).empty())
    refuse_command(program, words[0]);
  try {
    std::reverse(words.begin(), words.end());  // the parser takes them from the end
    app.parse(words);
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::usage, fmt::format("{}: {}", program, error.what()));
  }
  return chosen();
}

}  // namespace wflow::cli
