// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include "base/text.h"

namespace wflow::cli {

namespace {

constexpr std::string_view kExamples = "Examples:\n";

std::vector<const CLI::Option*> of_kind(const CLI::App& command, bool positional) {
  std::vector<const CLI::Option*> result;
  for (const CLI::Option* option : command.get_options()) {
    const bool shown = !option->get_group().empty();
    if (shown && option->get_positional() == positional) result.push_back(option);
  }
  return result;
}

}  // namespace

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::string title_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name();
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return text::join(names, ", ");
}

std::string value_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return {};
  const std::string type = option.get_type_name();
  return text::lower(type.substr(0, type.find(':')));
}

std::vector<const CLI::Option*> positionals_of(const CLI::App& command) {
  return of_kind(command, true);
}

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  return of_kind(command, false);
}

std::string remarks_of(const CLI::App& command) {
  const std::string footer = command.get_footer();
  return std::string(text::trim(footer.substr(0, footer.find(kExamples))));
}

std::vector<std::string> examples_of(const CLI::App& command) {
  const std::string footer = command.get_footer();
  const std::size_t at = footer.find(kExamples);
  std::vector<std::string> lines;
  if (at == std::string::npos) return lines;
  for (const std::string& line : text::split(footer.substr(at + kExamples.size()), '\n'))
    lines.emplace_back(text::trim(line));
  return lines;
}

}  // namespace wflow::cli
