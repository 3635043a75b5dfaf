// SPDX-License-Identifier: Apache-2.0
// The subcommands, one a file. Each adds itself to the command line; the given one sets `chosen`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::engine::wire {
struct WorkerView;
}

namespace wflow::cli {

using Command = std::function<int()>;

// The command line of wflow. Returns the exit code.
int run_command(int argc, char** argv);

// Adds all subcommands, in the order in which --help lists them; or, if `word` is one that reads no other's
// definition, only this one and those that its function adds with it.
void add_commands(CLI::App& app, Command& chosen, std::string_view word = "");

void add_run(CLI::App& app, Command& chosen);
void add_resume(CLI::App& app, Command& chosen);
void add_extend(CLI::App& app, Command& chosen);
void add_exec(CLI::App& app, Command& chosen);
// For `wflow exec`: removes the command and its arguments from the end of argv before argv is parsed.
void take_exec_words(const CLI::App& app, int& argc, char** argv);
// The description of the argument "campaign".
inline constexpr const char* kCampaign =
    "its directory, or the beginning of its name (default: the newest here)";
// "1 task", "1,234 tasks".
std::string tasks_text(std::uint64_t count);
// "working", "ended"; and whether it runs tasks or may.
std::string state_of(const engine::wire::WorkerView& worker);
bool works(const engine::wire::WorkerView& worker);

void add_status(CLI::App& app, Command& chosen);
void add_attach(CLI::App& app, Command& chosen);
void add_top(CLI::App& app, Command& chosen);
void add_retry(CLI::App& app, Command& chosen);
void add_cancel(CLI::App& app, Command& chosen);
// pause, unpause, drain, stop
void add_control(CLI::App& app, Command& chosen);
// ls, rm, snapshot, workers
void add_manage(CLI::App& app, Command& chosen);
void add_explain(CLI::App& app, Command& chosen);
void add_report(CLI::App& app, Command& chosen);
void add_export(CLI::App& app, Command& chosen);
void add_usage(CLI::App& app, Command& chosen);
void add_curves(CLI::App& app, Command& chosen);
void add_tasks(CLI::App& app, Command& chosen);
void add_samples(CLI::App& app, Command& chosen);
void add_validate(CLI::App& app, Command& chosen);
void add_plan(CLI::App& app, Command& chosen);
void add_schema(CLI::App& app, Command& chosen);
void add_logs(CLI::App& app, Command& chosen);
void add_adopt(CLI::App& app, Command& chosen);
void add_rerun(CLI::App& app, Command& chosen);
void add_init(CLI::App& app, Command& chosen);
void add_update(CLI::App& app, Command& chosen);  // diff, history
void add_redo(CLI::App& app, Command& chosen);
void add_keys(CLI::App& app, Command& chosen);
void add_allocations(CLI::App& app, Command& chosen);
void add_worker(CLI::App& app, Command& chosen);
void add_coordinate(CLI::App& app, Command& chosen);  // in_allocation.cc
// Hidden: wflow run starts it while a campaign waits for a study that it submitted.
void add_submitted(CLI::App& app, Command& chosen);
// Hidden: a campaign starts it for its study's on:.
void add_hook(CLI::App& app, Command& chosen);
void add_metrics(CLI::App& app, Command& chosen);
// Also started by the steps of a propose: block.
void add_propose(CLI::App& app, Command& chosen);
void add_event(CLI::App& app, Command& chosen);
void add_doctor(CLI::App& app, Command& chosen);
void add_install_shims(CLI::App& app, Command& chosen);
void add_help(CLI::App& app, Command& chosen);
void add_completion(CLI::App& app, Command& chosen);
// Hidden: writes the manual pages.
void add_manual(CLI::App& app, Command& chosen);
// `wflow complete WORD...`, which the shells' completion calls: prints the candidates for the last word.
// False if argv asks for something else.
bool complete(const CLI::App& app, int argc, char** argv);
// Appends a line to the $WFLOW_EVENTS of the calling task. Error{usage} outside of a task.
void append_event(const nlohmann::json& event);
// `wflow merlin ...` and `wflow maestro ...`, which the programs of these names call (in a task, and those of
// install-shims). Returns the exit code; empty if argv asks for something else.
std::optional<int> run_merlin(int argc, char** argv);
std::optional<int> run_maestro(int argc, char** argv);
// `wflow convert ...` and `wflow train ...` become wflow-convert and wflow-train, as git does it.
void add_delegates(CLI::App& app);
// Does not return if argv names one of them.
void run_delegate(int argc, char** argv);
// `wflow launch ...`, whose arguments are mostly those of another program. Empty if argv asks for something
// else, or for its help. Does not return if the program was started.
void add_launch(CLI::App& app);
std::optional<int> run_launch(int argc, char** argv);

// ---- doctor_campaign.cc: wflow doctor CAMPAIGN

struct DoctorOptions {
  std::string campaign;
  bool yes = false;  // repair without asking
  bool json = false;
};

// Finds and repairs the damage of a campaign that no process runs. Returns the exit code: 0 if
// nothing is wrong (any more), 4 if a problem remains.
int examine_campaign(const DoctorOptions& options);

// ---- definitions.cc: the command line's definitions as data. Help, completion, manual pages and
// docs/commands.md are made from them.

// The commands that --help lists, in its order.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
// "-j, --slots", "study"
std::string title_of(const CLI::Option& option);
// "N", "FILE", ...: the value of the option; empty for a flag.
std::string value_of(const CLI::Option& option);
std::vector<const CLI::Option*> positionals_of(const CLI::App& command);
std::vector<const CLI::Option*> options_of(const CLI::App& command);
// A command's footer up to "Examples:", and the lines after it without their indent.
std::string remarks_of(const CLI::App& command);
std::vector<std::string> examples_of(const CLI::App& command);

// Commands of wflow that are other programs: `wflow shards ...` is `wflow-convert shards ...`.

struct Delegate {
  const char* program = "";
  bool is_subcommand = false;  // of the program, which gets its name
};
// No value: wflow runs the command itself.
std::optional<Delegate> delegate_of(std::string_view command);

// The studies that `wflow init` writes: cli/templates/*.yaml, built into the program.

struct Template {
  std::string_view name;
  std::string_view about;  // description in one line
  std::string_view text;   // the YAML file
};

// In the order of their names.
std::span<const Template> templates();

}  // namespace wflow::cli
