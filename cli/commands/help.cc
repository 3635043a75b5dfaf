// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/fronts.h"

namespace wflow::cli {

namespace {

void print_exit_codes() {
  for (const ExitCodeText& text : exit_codes()) {
    fmt::print("{:>4}  {:<13} {}{}\n", static_cast<int>(text.code), text.name, text.meaning,
               text.advice.empty() ? "" : fmt::format("; then: {}", text.advice));
  }
}

int help(const CLI::App& app, const std::string& topic) {
  if (topic.empty()) {
    // Not app.help(): that prints the help of the given command, which is `help` itself.
    fmt::print("{}", app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
    return 0;
  }
  if (topic == "exit-codes") {
    print_exit_codes();
    return 0;
  }
  if (const auto delegate = delegate_of(topic)) {
    const std::string program = sibling_program(delegate->program);
    std::fflush(stdout);
    if (delegate->is_subcommand) ::execl(program.c_str(), program.c_str(), topic.c_str(), "--help", nullptr);
    ::execl(program.c_str(), program.c_str(), "--help", nullptr);
    throw system_error(errno, "cannot start " + program);
  }
  std::vector<std::string> topics = {"exit-codes"};
  for (const CLI::App* command : commands_of(app)) {
    topics.push_back(command->get_name());
    if (command->get_name() != topic) continue;
    fmt::print("{}", command->help("wflow"));
    return 0;
  }
  answer_other_word(topic);
  throw Error(ExitCode::usage, fmt::format("there is no command '{}'{} (wflow help lists the commands)",
                                           topic, text::suggestion(topic, topics)));
}

}  // namespace

void add_help(CLI::App& app, Command& chosen) {
  const auto topic = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "what a command does, or what the exit codes mean");
  command->footer("Examples:\n  wflow help run\n  wflow help exit-codes");
  command->add_option("command", *topic, "a command, or exit-codes");
  command->callback([&app, topic, &chosen] { chosen = [&app, topic] { return help(app, *topic); }; });
}

}  // namespace wflow::cli
