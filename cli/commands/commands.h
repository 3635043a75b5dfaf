// SPDX-License-Identifier: Apache-2.0
// The subcommands, one a file. Each adds itself to the command line and, when it is the one given, sets
// `chosen`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace wflow::cli {

using Command = std::function<int()>;

// All of them, in the order in which --help lists them.
void add_commands(CLI::App& app, Command& chosen);

void add_run(CLI::App& app, Command& chosen);
void add_resume(CLI::App& app, Command& chosen);
void add_extend(CLI::App& app, Command& chosen);
void add_exec(CLI::App& app, Command& chosen);
// Of `wflow exec`: takes the command and its arguments from the end of argv, before it is parsed.
void take_exec_words(const CLI::App& app, int& argc, char** argv);
// Of the argument "campaign".
inline constexpr const char* kCampaign =
    "its directory, or the beginning of its name (default: the newest here)";
// "1 task", "1,234 tasks".
std::string tasks_text(std::uint64_t count);

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
// Hidden: what wflow run starts while a campaign waits for a study that it submitted.
void add_submitted(CLI::App& app, Command& chosen);
// Hidden: what a campaign starts for its study's on:.
void add_hook(CLI::App& app, Command& chosen);
void add_metrics(CLI::App& app, Command& chosen);
void add_event(CLI::App& app, Command& chosen);
void add_doctor(CLI::App& app, Command& chosen);
void add_install_shims(CLI::App& app, Command& chosen);
void add_help(CLI::App& app, Command& chosen);
void add_completion(CLI::App& app, Command& chosen);
// Hidden: writes the manual pages.
void add_manual(CLI::App& app, Command& chosen);
// `wflow complete WORD...`, which the shells' completion calls: prints what the last word may become. False
// when argv asks for something else.
bool complete(const CLI::App& app, int argc, char** argv);
// Appends a line to the calling task's $WFLOW_EVENTS. Error{usage} outside of a task.
void append_event(const nlohmann::json& event);
// `wflow merlin ...` and `wflow maestro ...`, which the programs of these names call (in a task, and those of
// install-shims); the exit code, or nothing when argv asks for something else.
std::optional<int> run_merlin(int argc, char** argv);
std::optional<int> run_maestro(int argc, char** argv);
// `wflow convert ...` and `wflow train ...` become wflow-convert and wflow-train, as git does it.
void add_delegates(CLI::App& app);
// `wflow launch ...`, whose arguments are mostly those of another program; nothing when argv asks for
// something else, or for its help. Does not return when the program was started.
void add_launch(CLI::App& app);
std::optional<int> run_launch(int argc, char** argv);
// Does not return when argv names one of them.
void run_delegate(int argc, char** argv);

void add_export(CLI::App& app, Command& chosen);

struct DoctorOptions {
  std::string campaign;
  bool yes = false;  // mend without asking
  bool json = false;
};

// Gives the exit code: 0 where nothing is wrong (any more), 4 where something is left.
int examine_campaign(const DoctorOptions& options);

// ---- definitions.cc: the command line's definitions as data. Help, completion, manual pages and docs/commands.md are
// made from them.

// The commands that --help lists, in its order.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
// "-j, --slots", "study"
std::string title_of(const CLI::Option& option);
// "N", "FILE", ...: what follows the option; empty for a flag.
std::string value_of(const CLI::Option& option);
std::vector<const CLI::Option*> positionals_of(const CLI::App& command);
std::vector<const CLI::Option*> options_of(const CLI::App& command);
// A command's footer up to "Examples:", and the lines after it without their indent.
std::string remarks_of(const CLI::App& command);
std::vector<std::string> examples_of(const CLI::App& command);

}  // namespace wflow::cli
