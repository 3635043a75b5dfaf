// SPDX-License-Identifier: Apache-2.0
// `wflow manual DIR`: wflow.1 and wflow-<command>.1 from the same definitions as --help; `wflow manual
// --table`: docs/commands.md.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "cli/commands/commands.h"

namespace wflow::cli {

namespace {

// Escapes text for roff: no line may look like a request, no character like an escape.
std::string roff(const std::string& written) {
  std::string result;
  for (const char c : written) {
    const bool begins_line = result.empty() || result.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string heading(const std::string& name, const std::string& about) {
  return fmt::format(".TH {} 1 \"\" \"wflow {}\" \"wflow\"\n.SH NAME\n{} \\- {}\n", roff(name), kVersion,
                     roff(name), roff(about));
}

std::string synopsis(const CLI::App& command) {
  std::string result = ".SH SYNOPSIS\n.B wflow " + roff(command.get_name()) + "\n";
  for (const CLI::Option* option : positionals_of(command)) {
    const std::string name = roff(option->get_name());
    result +=
        option->get_required() ? fmt::format("\\fI{}\\fR\n", name) : fmt::format("[\\fI{}\\fR]\n", name);
  }
  return result + "[\\fIoptions\\fR]\n";
}

std::string option_list(const std::vector<const CLI::Option*>& options) {
  std::string result;
  for (const CLI::Option* option : options) {
    const std::string value = option->get_positional() ? "" : value_of(*option);
    result += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(title_of(*option)),
                          value.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(value)),
                          roff(option->get_description()));
  }
  return result;
}

std::string example_list(const CLI::App& command) {
  const auto examples = examples_of(command);
  if (examples.empty()) return {};
  std::string result = ".SH EXAMPLES\n.nf\n";
  for (const std::string& example : examples) result += roff(example) + "\n";
  return result + ".fi\n";
}

std::string exit_status_section() {
  std::string result = ".SH EXIT STATUS\n";
  for (const ExitCodeText& text : exit_codes())
    result += fmt::format(".TP\n.B {}\n{}\n", static_cast<int>(text.code), roff(std::string(text.meaning)));
  return result;
}

std::string page_of(const CLI::App& command) {
  std::string page = heading("wflow-" + command.get_name(), command.get_description());
  page += synopsis(command);
  if (const std::string remarks = remarks_of(command); !remarks.empty())
    page += ".SH DESCRIPTION\n" + roff(remarks) + "\n";
  if (const auto list = positionals_of(command); !list.empty()) page += ".SH ARGUMENTS\n" + option_list(list);
  page += ".SH OPTIONS\n" + option_list(options_of(command));
  return page + example_list(command) + exit_status_section() + ".SH SEE ALSO\n.BR wflow (1)\n";
}

std::string main_page(const CLI::App& app) {
  std::string page = heading("wflow", "ensembles of simulations, training data, and training");
  page += ".SH SYNOPSIS\n.B wflow\n\\fIcommand\\fR [\\fIarguments\\fR]\n.SH DESCRIPTION\n.nf\n";
  page += roff(app.get_description()) + "\n.fi\n.SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) {
    page += fmt::format(".TP\n.BR wflow\\-{} (1)\n{}\n", roff(command->get_name()),
                        roff(command->get_description()));
  }
  page += ".SH OPTIONS\n" + option_list(options_of(app));
  page += example_list(app) + exit_status_section();
  page +=
      ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nno colours, when set\n.TP\n.B XDG_STATE_HOME\nwhere the list of "
      "your "
      "campaigns is kept, for wflow status \\-\\-all (default: ~/.local/state)\n";
  return page;
}

std::string table(const CLI::App& app) {
  std::string text =
      "# Commands\n\n`wflow manual --table` writes this page, and a test compares them. `wflow help COMMAND` "
      "shows all "
      "options,\n`docs/exit-codes.md` the exit codes. A campaign is named by its directory or by the "
      "beginning of its "
      "name. Without a\nname, a command uses the newest campaign in the current directory.\n\n"
      "| command | what it does | for example |\n|---|---|---|\n";
  for (const CLI::App* command : commands_of(app)) {
    const auto examples = examples_of(*command);
    text += fmt::format("| `{}` | {} | {} |\n", command->get_name(), command->get_description(),
                        examples.empty() ? "" : "`" + examples.front() + "`");
  }
  return text;
}

int write_pages(const CLI::App& app, const std::filesystem::path& directory) {
  make_directories(directory);
  write_file_durably(directory / "wflow.1", main_page(app));
  for (const CLI::App* command : commands_of(app))
    write_file_durably(directory / fmt::format("wflow-{}.1", command->get_name()), page_of(*command));
  return 0;
}

}  // namespace

void add_manual(CLI::App& app, Command& chosen) {
  const auto directory = std::make_shared<std::string>(".");
  const auto as_table = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("manual", "write the manual pages");
  command->group("");
  command->add_option("directory", *directory, "where to");
  command->add_flag("--table", *as_table, "print docs/commands.md instead");
  command->callback([&app, directory, as_table, &chosen] {
    chosen = [&app, directory, as_table] {
      if (!*as_table) return write_pages(app, *directory);
      fmt::print("{}", table(app));
      return 0;
    };
  });
}

}  // namespace wflow::cli
