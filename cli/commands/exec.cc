// SPDX-License-Identifier: Apache-2.0
// `wflow exec`: commands without a study file, recorded as any campaign.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "cli/exec/exec_study.h"
#include "cli/exec/printer.h"
#include "engine/query/client.h"
#include "specs/samples/samples.h"
#include "steps/command.h"

namespace wflow::cli {

namespace {

struct ExecCommandOptions {
  ExecOptions exec;
  RunOptions run;
  bool keep_order = false;
  bool quiet = false;
  bool dry = false;
};

int print_commands(const specs::StudyAndWarnings& read) {
  const specs::Plan plan(read.study, "/");
  const auto samples = specs::open_samples(read.study.samples->design);
  const specs::TaskTemplate task = plan.task_template(0);
  std::string text;
  constexpr std::size_t kWriteBytes = 1 << 16;
  const std::string folder = current_directory().string();
  for (std::uint64_t row = 0; row < samples->count(); ++row) {
    text += without_folder(steps::render(task.command, samples.get(), row, ""), folder);
    text += '\n';
    if (text.size() < kWriteBytes && row + 1 < samples->count()) continue;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) return 0;
    text.clear();
  }
  return 0;
}

std::string commands_text(std::uint64_t count) {
  return fmt::format("{} command{}", text::format_count(count), count == 1 ? "" : "s");
}

// After the output, on standard error: the result, the place of the record, the command to go on.
void print_end(const specs::Plan& plan) {
  const engine::CampaignStatus status = engine::campaign_status(plan.campaign());
  const std::string directory = text::shell_quote(
      std::filesystem::path(status.directory).lexically_proximate(std::filesystem::current_path()).string());
  std::string line = fmt::format("wflow exec: {} of {} done",
                                 text::format_count(status.ended() - status.failed() - status.cancelled()),
                                 commands_text(status.elements()));
  if (status.failed() > 0) line += fmt::format(", {} failed", text::format_count(status.failed()));
  fmt::print(stderr, "{} in {}; record: {}\n", line, text::format_duration(status.elapsed_s), directory);
  if (status.ended() < status.elements()) fmt::print(stderr, "go on with: wflow resume {}\n", directory);
  if (status.failed() > 0)
    fmt::print(stderr, "what failed: wflow tasks {0} --failed; again: wflow retry {0}\n", directory);
}

int run_commands(const specs::StudyAndWarnings& read, ExecCommandOptions options) {
  const specs::Plan plan = create(read);
  options.run.quiet = true;
  options.run.keep_going = true;  // exit code 102 of a command must not end the others
  if (options.run.detach) {
    options.run.quiet = options.quiet;
    return coordinate(plan, options.run, false);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::optional<OutputPrinter> printer;
  if (!options.quiet) printer.emplace(plan, options.keep_order);
  const int code = coordinate(plan, options.run, false);
  const bool all_printed = !printer || printer->finish();
  if (!options.quiet && all_printed) print_end(plan);
  if (!all_printed && printer->error() != 0 && printer->error() != EPIPE) {
    throw system_error(printer->error(),
                       fmt::format("cannot write what the commands print (the record has it: {})",
                                   plan.campaign().string()));
  }
  return code;
}

int exec(ExecCommandOptions& options) {
  limit_of(options.run);
  for (const std::string& word : shell_operators(options.exec.words.command)) {
    fmt::print(
        stderr,
        "wflow exec: '{}' goes to the program as it is; for a shell, give the command as one word: '{}'\n",
        word, text::join(options.exec.words.command, " "));
  }
  std::optional<specs::StudyAndWarnings> read;
  std::optional<ExecStudy> study(std::in_place, options.exec);
  read = study->read();
  if (!read) {
    if (!options.quiet) fmt::print(stderr, "wflow exec: there are no arguments, and so no command\n");
    return 0;
  }
  if (options.dry) return print_commands(*read);
  return run_commands(*read, options);
}

// True if the word is an option whose value is the next word.
bool takes_next_word(const CLI::App& command, const std::string& word) {
  const auto takes_value = [&](const std::string& name) {
    const CLI::Option* option = command.get_option_no_throw(name);
    return option != nullptr && option->get_items_expected_max() > 0;
  };
  if (word.starts_with("--")) return word.find('=') == std::string::npos && takes_value(word);
  // Flags may be joined, as in "-qkj 4": the first option with a value takes the rest of the word.
  for (std::size_t i = 1; i < word.size(); ++i) {
    if (takes_value({'-', word[i]})) return i + 1 == word.size();
  }
  return false;
}

// The words of argv that CLI11 must not see, because it would take them for options and subcommands.
std::vector<std::string> g_command_words;
std::string g_command_line;

}  // namespace

void take_exec_words(const CLI::App& app, int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "exec") return;
  std::vector<std::string> quoted = {"wflow"};
  for (int i = 1; i < argc; ++i) quoted.push_back(text::shell_quote(argv[i]));
  g_command_line = text::join(quoted, " ");
  const CLI::App* command = app.get_subcommand("exec");
  int at = 2;
  for (; at < argc; ++at) {
    const std::string word = argv[at];
    if (word == "--" || word.size() < 2 || !word.starts_with('-')) break;
    if (takes_next_word(*command, word)) ++at;
  }
  const int first = at < argc && std::string_view(argv[at]) == "--" ? at + 1 : at;
  for (int i = first; i < argc; ++i) g_command_words.emplace_back(argv[i]);
  argc = std::min(at, argc);
}

void add_exec(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ExecCommandOptions>();
  CLI::App* command = app.add_subcommand("exec", "run a command for each of many arguments, without a study");
  command->footer(
      "COMMAND runs once for each argument, in this directory: {} is the argument, {1} {2} those of several\n"
      "lists, {name} a column of --samples or a --parameter, {#} the number from 1; {.} {/} {//} {/.} are "
      "without\n"
      "extension, without folders, the folder, without both. Arguments are quoted. A COMMAND of one word is "
      "a line\n"
      "for the shell. :::: FILE... takes the lines of files as lists. Without lists, arguments are the lines "
      "of standard input; without COMMAND these are "
      "commands.\n"
      "Each run is a campaign in ./wflow-exec: wflow status, tasks, logs, retry, resume and top work on it.\n"
      "Examples:\n  wflow exec -j 8 -- ./simulate --seed {} ::: 1 2 3\n"
      "  wflow exec 'gzip -9 < {} > {/}.gz' ::: *.log\n"
      "  wflow exec -- ./simulate {1} {2} :::: cases.txt ::: low high\n"
      "  seq 1000 | wflow exec -- ./simulate --seed {}\n"
      "  wflow exec -j 8 < commands.txt\n"
      "  wflow exec --design sobol --count 100 --parameter x=0:1 -- ./simulate {x}\n"
      "  wflow exec --samples table.csv --retries 2 --timeout 10min -- ./simulate {omega} {sigma}");
  ExecOptions& exec_options = options->exec;
  command->add_option("-j,--slots,--jobs", options->run.slots, "cores that commands may use (default: all)")
      ->check(CLI::Range(1, 100000));
  command->add_option("-a,--arg-file", exec_options.arguments_file,
                      "a file of arguments, or of commands, one a line (default: standard input)");
  command->add_option("--samples", exec_options.samples, "a table of arguments: .csv, .tsv, .tab or .npy");
  command->add_option("--design", exec_options.design, "arguments by a design")
      ->check(CLI::IsMember({"uniform", "latin_hypercube", "sobol", "halton", "grid"}));
  command->add_option("--count", exec_options.count, "of --design: the number of commands");
  command->add_option("--seed", exec_options.seed, "of --design (default 0)");
  command
      ->add_option(
          "--parameter", exec_options.parameters,
          "of --design: NAME=LOW:HIGH, with :log or :integer behind it; of a grid NAME=A,B,C (repeatable)")
      ->allow_extra_args(false);
  command
      ->add_option("--retries", exec_options.retries,
                   "run a command that failed again, so many times at most")
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("--timeout", exec_options.timeout, "of each command: 90, 10min, 1.5h");
  command->add_option("--cores", exec_options.cores, "of each command (default 1)")
      ->check(CLI::Range(1, 100000));
  command->add_option("--memory", exec_options.memory,
                      "of each command: 2GiB; so many run side by side as fit into the machine's");
  command->add_option("--name", exec_options.name, "of the campaign (default: the program's)");
  command->add_option("--directory", exec_options.directory,
                      "where campaigns are made (default: ./wflow-exec)");
  for (const std::string_view event : {"finished", "failed", "first_failure", "stalled"}) {
    std::string name = "--on-" + std::string(event);
    std::replace(name.begin(), name.end(), '_', '-');
    command->add_option_function<std::string>(
        name,
        [&exec_options, event](const std::string& hook) { exec_options.hooks.emplace_back(event, hook); },
        "a command that is run when that happens (docs/hooks.md)");
  }
  command->add_option("--time-limit", options->run.time_limit,
                      "stop starting commands after this time; wflow resume goes on");
  command->add_flag("-k,--keep-order", options->keep_order, "print in the order of the arguments");
  command->add_flag("-q,--quiet", options->quiet,
                    "print errors only; wflow logs shows what a command printed");
  command->add_flag("-n,--dry-run", options->dry, "print the commands, and run nothing");
  command->add_flag("--detach", options->run.detach, "go on in the background; wflow attach shows it");
  command->callback([options, &chosen] {
    options->exec.words = read_exec_words(g_command_words);
    options->exec.line = g_command_line;
    chosen = [options] { return exec(*options); };
  });
}

}  // namespace wflow::cli
