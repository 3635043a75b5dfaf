// SPDX-License-Identifier: Apache-2.0
// `wflow rerun`: one task again, by hand, exactly as a worker would start it, and without any trace in the
// campaign.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "specs/plan/plan.h"
#include "specs/samples/samples.h"
#include "steps/step.h"
#include "workers/execute/host.h"
#include "workers/execute/resources.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEnvironmentFile = "environment";

struct RerunOptions {
  SelectionOptions selection;
  std::string task;  // its name
  std::uint32_t attempt = 0;
  bool restart = false;
  bool here = false;
  bool shell = false;
  bool print = false;
  bool json = false;
};

// A task as it is started here: its files are in `directory` instead of the campaign.
struct Rerun {
  std::string name;
  std::string program;  // a path; empty: argv[0]
  std::vector<std::string> argv;
  bool direct = false;  // without a shell
  fs::path directory;
  std::vector<steps::NewFile> files;
  std::vector<std::string> environment;
  double timeout_s = 0;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// The variables of the campaign's last coordinator; those of this process if none are recorded.
std::vector<std::string> recorded_environment(const fs::path& campaign) {
  const fs::path file = campaign / ".wflow" / kEnvironmentFile;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return steps::own_environment();
  std::vector<std::string> variables = text::split(read_file(file), '\0');
  std::erase(variables, "");
  return variables;
}

// The GPUs that a worker would give to the task: the first that this machine lets it see.
void give_gpus(std::vector<std::string>& environment, const specs::Resources& wanted) {
  if (wanted.gpus <= 0) return;
  constexpr std::string_view kVariable = "CUDA_VISIBLE_DEVICES=";
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  workers::Capacity capacity;
  capacity.gpus = wanted.gpus;
  capacity.visible = visible == nullptr ? "" : visible;
  workers::Share share;
  for (int i = 0; i < wanted.gpus; ++i) share.gpus.push_back(static_cast<std::size_t>(i));
  std::erase_if(environment, [&](const std::string& variable) { return variable.starts_with(kVariable); });
  environment.push_back(std::string(kVariable) + workers::DeviceNames(capacity).of(share));
}

Rerun prepare(const specs::Plan& plan, const specs::TaskId& id, const RerunOptions& options,
              const fs::path& directory, bool through_shell = false) {
  specs::TaskTemplate task_template = plan.task_template(id.array);
  if (task_template.kind == specs::StepKind::convert && task_template.block_samples == 0) {
    const specs::PlannedStep& planned = plan.steps()[plan.step_of(id.array)];
    throw Error(
        ExitCode::usage,
        fmt::format(
            "{} closes a data set that is already there; convert a block of it again: wflow rerun {}/0",
            options.task, plan.study().steps[planned.study_step].name));
  }
  if (auto* convert = std::get_if<converters::ConvertConfig>(&task_template.settings))
    convert->output = directory.string();
  if (auto* train = std::get_if<trainer::TrainConfig>(&task_template.settings))
    train->output = directory.string();
  std::unique_ptr<const specs::SampleTable> samples;
  if (plan.study().samples) samples = specs::open_samples(plan.study().samples->design);
  Rerun rerun;
  rerun.environment = steps::array_environment(
      steps::worker_environment(recorded_environment(plan.campaign()), executable_directory()), task_template,
      workers::usable_cores());
  // This environment decides if the command needs a shell.
  const auto step = steps::make_step(task_template, samples.get(), rerun.environment);
  const steps::ArraySetup setup = step->setup();
  steps::Execution execution{id.element, options.attempt, options.restart};
  execution.through_shell = through_shell;
  steps::PreparedTask task = step->prepare(execution);

  rerun.name = options.task;
  rerun.program = task.program;
  rerun.argv = task.argv;
  rerun.direct = task.direct;
  rerun.directory = directory;
  rerun.environment.insert(rerun.environment.end(), task.environment.begin(), task.environment.end());
  rerun.environment.push_back("WFLOW_EVENTS=" + (directory / "events.jsonl").string());
  rerun.environment.push_back("WFLOW_SLOT=1");
  if (task.direct) rerun.environment.push_back("PWD=" + directory.string());  // as a shell would have set it
  if (const std::int64_t bytes = task_template.resources.memory_bytes; bytes > 0)
    rerun.environment.push_back("WFLOW_MEMORY_BYTES=" + std::to_string(bytes));
  give_gpus(rerun.environment, task_template.resources);
  rerun.timeout_s = task_template.timeout_s;
  // Only files that wflow itself makes for a task move: text by the study's author stays as it is.
  rerun.files = setup.files;
  rerun.files.insert(rerun.files.end(), task.files.begin(), task.files.end());
  std::vector<std::pair<std::string, std::string>> moves;
  for (steps::NewFile& file : rerun.files) {
    const std::string to = (directory / fs::path(file.path).filename()).string();
    moves.emplace_back(file.path, to);
    file.path = to;
  }
  for (const auto& [from, to] : moves) {
    for (std::string& word : rerun.argv) word = replaced(word, from, to);
    for (std::string& variable : rerun.environment) variable = replaced(variable, from, to);
    for (steps::NewFile& file : rerun.files) file.text = replaced(file.text, from, to);
  }
  return rerun;
}

void write_files(const Rerun& rerun) {
  for (const steps::NewFile& file : rerun.files) {
    std::error_code ignored;
    if (fs::exists(file.path, ignored) && read_file(file.path) != file.text)
      throw Error(ExitCode::usage, fmt::format("{} is in the way; run this in another directory", file.path));
    write_file_durably(file.path, file.text);
  }
}

std::string command_line(const std::vector<std::string>& argv) {
  std::vector<std::string> words;
  for (const std::string& word : argv) words.push_back(text::shell_quote(word));
  return text::join(words, " ");
}

int print(const Rerun& rerun, bool json) {
  if (json) {
    nlohmann::json files = nlohmann::json::array();
    for (const auto& file : rerun.files) files.push_back({{"path", file.path}, {"text", file.text}});
    fmt::print("{}\n", nlohmann::json{{"task", rerun.name},
                                      {"argv", rerun.argv},
                                      {"directory", rerun.directory.string()},
                                      {"environment", rerun.environment},
                                      {"files", files}}
                           .dump(2));
    return 0;
  }
  fmt::print("# {}\ncd {}\n", rerun.name, text::shell_quote(rerun.directory.string()));
  for (const std::string& variable : rerun.environment) {
    const std::size_t at = variable.find('=');
    fmt::print("export {}={}\n", variable.substr(0, at), text::shell_quote(variable.substr(at + 1)));
  }
  for (const auto& file : rerun.files) {
    fmt::print("cat > {} <<'WFLOW_END_OF_FILE'\n{}{}WFLOW_END_OF_FILE\n", text::shell_quote(file.path),
               file.text, file.text.ends_with('\n') ? "" : "\n");
  }
  fmt::print("{}\n", command_line(rerun.argv));
  return 0;
}

// Runs the command in the foreground, in the caller's own process group: Ctrl-C reaches it, and this program
// waits for its end.
int run(const Rerun& rerun, const std::string& program, const std::vector<std::string>& argv) {
  std::fflush(stdout);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGQUIT, SIG_IGN);
  SpawnRequest request;
  request.argv = argv;
  request.program = program;
  request.environment = rerun.environment;
  request.directory = rerun.directory.string();
  request.stdin_fd = STDIN_FILENO;
  const pid_t child = spawn(request);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw system_error(errno, "cannot wait for " + argv.front());
  }
  return exit_status(status);
}

fs::path temporary_directory() {
  std::error_code error;
  fs::path directory = fs::temp_directory_path(error);
  if (error) throw system_error(error.value(), "cannot use the temporary directory that $TMPDIR names");
  return directory;
}

fs::path scratch_directory() {
  std::string name = (temporary_directory() / "wflow-rerun-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw system_error(errno, "cannot make a directory like " + name);
  return name;
}

// Runs the command as a worker does: if it can't start without a shell, a shell runs it and reports why.
int run_as_worker(const specs::Plan& plan, const specs::TaskId& id, const RerunOptions& options,
                  const Rerun& task) {
  try {
    return run(task, task.program, task.argv);
  } catch (const Error&) {
    if (!task.direct) throw;
  }
  const Rerun by_shell = prepare(plan, id, options, task.directory, true);
  write_files(by_shell);
  return run(by_shell, by_shell.program, by_shell.argv);
}

specs::TaskId find(const specs::Plan& plan, RerunOptions& options) {
  engine::Client client(plan);
  const specs::TaskId id = single_task(plan, client, options.selection);
  options.task = specs::task_name(plan, id.array, id.element);
  return id;
}

int rerun(RerunOptions& options) {
  const specs::Plan plan = read_plan(open_selection(options.selection));
  const specs::TaskId id = find(plan, options);
  if (options.print || options.json) {
    const fs::path directory = options.here ? current_directory() : temporary_directory() / "wflow-rerun";
    return print(prepare(plan, id, options, directory), options.json);
  }
  const fs::path directory = options.here ? current_directory() : scratch_directory();
  const Rerun task = prepare(plan, id, options, directory);
  write_files(task);
  if (options.shell) {
    const char* shell = std::getenv("SHELL");
    fmt::print(stderr, "a shell with the environment of {}; it runs: {}\n", task.name,
               command_line(task.argv));
    return run(task, {}, {shell != nullptr && *shell != '\0' ? shell : "/bin/sh"});
  }
  fmt::print(stderr, "{} in {}\n", task.name, directory.string());
  const int code = run_as_worker(plan, id, options, task);
  fmt::print(stderr, "{}: exit code {}; what it left is in {}\n", task.name, code, directory.string());
  return code;
}

}  // namespace

void record_environment(const fs::path& campaign) {
  std::string bytes;
  for (const std::string& variable : steps::own_environment()) bytes.append(variable).push_back('\0');
  try {
    write_file_durably(campaign / ".wflow" / kEnvironmentFile, bytes, 0600);
  } catch (const Error&) {
    // Without the file, wflow rerun uses its own variables.
  }
}

void add_rerun(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<RerunOptions>();
  CLI::App* command =
      app.add_subcommand("rerun", "run one task by hand, outside the campaign, to see what it does");
  command->footer(
      "The same command, script, variables and environment as on a worker, in the foreground: output goes to "
      "the\n"
      "terminal, the exit code is the task's. A command that needs no shell is started without one, and a "
      "step "
      "that\n"
      "wants GPUs gets the first that are visible here. It runs in a new directory below $TMPDIR, or with "
      "--here in "
      "the\n"
      "current one, and the campaign's record, outputs and logs stay as they are. A conversion or training "
      "writes\n"
      "into that directory too; a command of your own that names absolute paths ($(WORKSPACE), a "
      "dependency's\n"
      "workspace) reads and writes there. No time limit holds.\n"
      "Examples:\n  wflow rerun simulate/12\n  wflow rerun cosmoflow simulate/12 --here\n  wflow rerun "
      "simulate/12 "
      "--shell\n  wflow rerun simulate/12 --print > again.sh");
  add_selection(*command, options->selection);
  command->add_flag("--here", options->here, "in the current directory");
  auto* shell =
      command->add_flag("--shell", options->shell, "open $SHELL there instead, with the task's environment");
  auto* print =
      command->add_flag("--print", options->print, "print all of it as a shell script, run nothing");
  print->excludes(shell);
  command->add_flag("--restart", options->restart, "the step's restart command");
  command->add_option("--attempt", options->attempt, "as this attempt ($WFLOW_ATTEMPT; default 0)");
  command->add_flag("--json", options->json, "print all of it as JSON, run nothing")->excludes(shell);
  command->callback([options, &chosen] { chosen = [options] { return rerun(*options); }; });
}

}  // namespace wflow::cli
