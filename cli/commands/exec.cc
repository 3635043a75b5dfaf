// SPDX-License-Identifier: Apache-2.0
// `wflow exec`: commands without a study file, recorded as any campaign.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/loop_inputs.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/update.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "cli/exec/exec_study.h"
#include "cli/exec/printer.h"
#include "cli/observe/observer.h"
#include "engine/query/client.h"
#include "specs/plan/versions.h"
#include "specs/samples/samples.h"
#include "specs/study/changes.h"
#include "steps/command.h"

namespace wflow::cli {

namespace {

struct ExecCommandOptions {
  ExecOptions exec;
  RunOptions run;
  PrinterOptions printer;
  RecordOptions records;
  std::string halt;
  bool tag = false;
  bool bar = false;
  bool eta = false;
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
void print_end(const engine::CampaignStatus& status, bool halted, bool read_all) {
  const std::string directory = text::shell_quote(
      std::filesystem::path(status.directory).lexically_proximate(std::filesystem::current_path()).string());
  std::string line = fmt::format("wflow exec: {} of {} done",
                                 text::format_count(status.ended() - status.failed() - status.cancelled()),
                                 commands_text(status.elements()));
  if (status.failed() > 0) line += fmt::format(", {} failed", text::format_count(status.failed()));
  if (halted) line += ", then --halt ended it";
  fmt::print(stderr, "{} in {}; record: {}\n", line, text::format_duration(status.elapsed_s), directory);
  if (!read_all)
    fmt::print(stderr, "not all of the input was read; the record has the commands up to there\n");
  if (status.ended() < status.elements()) fmt::print(stderr, "go on with: wflow resume {}\n", directory);
  if (status.failed() > 0)
    fmt::print(stderr, "what failed: wflow tasks {0} --failed; again: wflow retry {0}\n", directory);
}

// Runs the commands of a study whose input may still come: batch after batch, each with the lines that came
// while the one before it ran. A batch costs a version of the study.
class ExecRun {
 public:
  ExecRun(ExecStudy& study, ExecCommandOptions options, const specs::StudyAndWarnings& read)
      : study_(study), options_(std::move(options)), limit_s_(limit_of(options_.run)), plan_(create(read)) {
    mark_as_exec(plan_.campaign());
    options_.run.quiet = true;
    options_.run.keep_going = true;  // exit code 102 of a command must not end the others
    if (options_.exec.halt.when != HaltRule::When::never) options_.run.max_range = 1;
  }

  int run() {
    if (options_.run.detach) {
      options_.run.quiet = options_.quiet;
      return coordinate(plan_, options_.run, false);
    }
    std::signal(SIGPIPE, SIG_IGN);
    signals_.emplace(std::initializer_list<int>{SIGINT, SIGTERM});  // those between two batches
    options_.records.values = study_.values();
    if (options_.records.any()) records_.emplace(options_.records);
    options_.printer.output = !options_.quiet;
    options_.printer.tag = study_.tag();
    if (options_.printer.output || options_.printer.progress != PrinterOptions::Progress::none)
      printer_.emplace(plan_, options_.printer);
    options_.run.look = [this](const engine::CampaignStatus& status) { look(status); };
    run_batches();
    return finish();
  }

 private:
  void run_batches() {
    for (bool resumed = false;; resumed = true) {
      options_.run.more_follows = !study_.ended();
      if (limit_s_ > 0)
        options_.run.time_limit = fmt::format("{:.3f}", std::max(limit_s_ - passed_s(), 1e-3));
      const specs::Element first = batch_;
      batch_ = plan_.element_count();
      code_ = coordinate(plan_, options_.run, resumed);
      if (records_) records_->add(plan_, first);
      status_ = engine::campaign_status(plan_.campaign());
      halted_ = is_met(options_.exec.halt, status_);
      if (study_.ended() || halted_ || status_.ended() < status_.elements()) return;
      const bool more =
          study_.read_more({signals_->descriptor(), limit_s_ > 0 ? began_s_ + limit_s_ : kForever_s});
      if (more) grow();
      if (!study_.ended() && (signals_->take() || is_over())) {
        code_ = static_cast<int>(ExitCode::interrupted);
        status_ = engine::campaign_status(plan_.campaign());
        return;
      }
      if (!more) {
        Observer(plan_).ended(status_);
        return;
      }
    }
  }

  // Takes in the lines that have come. The version before has nothing that this one lacks.
  void grow() {
    const std::uint64_t before = specs::current_version(plan_.campaign());
    specs::Growth growth;
    growth.samples = study_.table();
    UpdateOptions how;
    how.command = "exec";
    take(propose_growth(plan_, growth), how);
    plan_ = read_plan_to_run(plan_.campaign());
    if (printer_) printer_->go_on(plan_, batch_);
    if (before > 1) specs::remove_version(plan_.campaign(), before);
  }

  // From the coordinator's thread.
  void look(const engine::CampaignStatus& status) {
    if (printer_) printer_->show(status, !study_.ended());
    const HaltRule& rule = options_.exec.halt;
    if (stopping_ || !is_met(rule, status)) return;
    stopping_ = true;
    ::kill(::getpid(), rule.when == HaltRule::When::now ? SIGTERM : SIGINT);
  }

  int finish() {
    const bool all_printed = !printer_ || printer_->finish();
    if (!options_.quiet && all_printed) print_end(status_, halted_, study_.ended());
    if (!all_printed && printer_->error() != 0 && printer_->error() != EPIPE) {
      throw system_error(printer_->error(),
                         fmt::format("cannot write what the commands print (the record has it: {})",
                                     plan_.campaign().string()));
    }
    const bool lost = !all_printed && printer_->error() == 0;  // and a sentence has said why
    if (lost && code_ == 0) return static_cast<int>(ExitCode::data);
    if (!halted_) return code_;
    return static_cast<int>(status_.failed() > 0 ? ExitCode::tasks_failed : ExitCode::ok);
  }

  static constexpr double kForever_s = std::numeric_limits<double>::infinity();

  bool is_over() const { return limit_s_ > 0 && passed_s() >= limit_s_; }
  double passed_s() const { return steady_now_s() - began_s_; }

  ExecStudy& study_;
  ExecCommandOptions options_;
  double limit_s_;
  double began_s_ = steady_now_s();
  specs::Plan plan_;
  std::optional<SignalQueue> signals_;
  std::optional<ExecRecords> records_;
  std::optional<OutputPrinter> printer_;
  specs::Element batch_ = 0;  // the end of the batch
  bool stopping_ = false;
  bool halted_ = false;
  int code_ = 0;
  engine::CampaignStatus status_;
};

int exec(ExecCommandOptions& options) {
  limit_of(options.run);
  for (const std::string& word : shell_operators(options.exec.words.command)) {
    fmt::print(
        stderr,
        "wflow exec: '{}' goes to the program as it is; for a shell, give the command as one word: '{}'\n",
        word, text::join(options.exec.words.command, " "));
  }
  if (!options.halt.empty()) options.exec.halt = read_halt(options.halt);
  if (options.tag && options.exec.tag.empty()) options.exec.tag = "{}";
  if (options.eta) options.printer.progress = PrinterOptions::Progress::eta;
  if (options.bar) options.printer.progress = PrinterOptions::Progress::bar;
  options.exec.with_values = !options.records.results.empty();
  options.exec.all_at_once = options.dry || options.run.detach;
  if (options.run.detach && (options.records.any() || options.exec.halt.when != HaltRule::When::never))
    throw Error(ExitCode::usage, "--joblog, --results and --halt need this process; leave out --detach");
  ExecStudy study(options.exec);
  const std::optional<specs::StudyAndWarnings> read = study.read();
  if (!read) {
    if (!options.quiet) fmt::print(stderr, "wflow exec: there are no arguments, and so no command\n");
    return 0;
  }
  if (options.dry) return print_commands(*read);
  return ExecRun(study, options, *read).run();
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
      "lists, {name} a column of --samples or a --parameter, {#} the number from 1, {%} the slot from 1; {.} "
      "{/} "
      "{//}\n{/.} are without extension, without folders, the folder, without both. Arguments are quoted. A "
      "COMMAND of one word is "
      "a line\n"
      "for the shell. :::: FILE... takes the lines of files as lists. Without lists, arguments are the lines "
      "of standard input; without COMMAND these are "
      "commands.\nOf a pipe, commands start with the lines that are there, while others still come.\n"
      "Each run is a campaign in ./wflow-exec: wflow status, tasks, logs, retry, resume and top work on it.\n"
      "Examples:\n  wflow exec -j 8 -- ./simulate --seed {} ::: 1 2 3\n"
      "  wflow exec 'gzip -9 < {} > {/}.gz' ::: *.log\n"
      "  wflow exec -- ./simulate {1} {2} :::: cases.txt ::: low high\n"
      "  seq 1000 | wflow exec -- ./simulate --seed {}\n"
      "  wflow exec --bar --joblog jobs.tsv --halt soon,fail=3 -- ./simulate {} ::: *.cfg\n"
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
  command->add_option("--halt", options->halt,
                      "never; soon,fail=1: start no more after a failure; now,fail=1: end the others, too; "
                      "fail=N%, success=N, done=N (0, 1, 2: the first three)");
  command->add_option("--joblog", options->records.joblog,
                      "write a line for each command into this file, in the columns of GNU parallel");
  command
      ->add_option("--results", options->records.results,
                   "write what each command prints into DIR/1/VALUE/stdout, stderr and seq")
      ->type_name("DIR");
  command->add_flag("--tag", options->tag, "print the arguments and a tab before each line of output");
  command->add_option("--tagstring", exec_options.tag, "print this text instead, with placeholders");
  command->add_flag("--bar", options->bar, "show on standard error how many commands have ended, with a bar");
  command->add_flag("--eta", options->eta, "the same without the bar");
  command->add_flag("-k,--keep-order", options->printer.keep_order, "print in the order of the arguments");
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
