// SPDX-License-Identifier: Apache-2.0
// Which tasks of a campaign a command means. Options and --where (wflow tasks) are evaluated page by page, so
// that the first hundred of a million are found without looking at the rest.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/campaign/task_words.h"
#include "engine/query/client.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/states.h"
#include "engine/schedule/types.h"
#include "engine/update/changes.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

struct SelectionOptions {
  TaskWords words;  // the campaign and tasks, as typed
  TaskWords tasks;  // the tasks among them; open_selection() sets it
  std::string step;
  std::vector<std::string> states;
  bool failed = false;   // --failed
  bool missing = false;  // --missing
  std::optional<int> exit_code;
  std::string worker;
  std::string range;     // 1-5,7
  std::string duration;  // ">2"
  std::string where;
  // Rows contain the usage of the last execution; else only if the selection needs it.
  bool with_usage = false;
  bool few = false;  // for a terminal, which shows a hundred rows
};
void add_selection(CLI::App& command, SelectionOptions& options);
// Without --state and --exit-code: for commands that fix the states themselves.
void add_chosen(CLI::App& command, SelectionOptions& options);

// The campaign that the words mean. Sets `tasks`.
std::filesystem::path open_selection(SelectionOptions& options);
// True if an option names single tasks by what is known of each.
bool chooses_single_tasks(const SelectionOptions& options);
// The tasks that words, --step and --range name, in any state. Error{usage} where two of them name a step.
std::vector<Stretch> stretches_of(const specs::Plan& plan, const SelectionOptions& options);

// The known facts of a task; unknown ones are absent. An execution of less than a millisecond has no record,
// and of very many tasks only a sample has one (docs/database.md).
struct TaskRow {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  engine::ElementState state = engine::ElementState::blocked;
  std::uint64_t attempts = 0;
  std::optional<int> exit_code;
  std::optional<int> signal;  // that ended the last execution
  std::string reason;
  std::string worker;
  std::optional<double> started_s;
  std::optional<double> duration_s;
  // The name to show: that of `state`, or "missing" if the sample's output was not usable.
  std::string state_name() const;
  bool missing = false;  // done, and a conversion could not use the output
  // For a missing task: the conversion and the reason. For a failed task: the last line of its output.
  std::string detail;
  std::optional<engine::TaskUsage> used;  // by the last execution that has ended; a bundle's total
};

// Calls visit for every selected task, in order, until it returns false.
void select_tasks(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options,
                  const std::function<bool(const TaskRow&)>& visit);

// Adds at most `limit` selected tasks (0: all) to a listing with found(), add(row) and finish(bool more).
template <typename Listing>
void list_tasks(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options,
                std::uint64_t limit, Listing& listing) {
  bool more = false;
  select_tasks(plan, client, options, [&](const TaskRow& row) {
    more = limit > 0 && listing.found() == limit;
    if (more) return false;
    listing.add(row);
    return true;
  });
  listing.finish(more);
}

// Splits the selection into several with at most `parts` parts each: messages have a size limit.
std::vector<engine::wire::Selection> in_messages(const engine::wire::Selection& selection, std::size_t parts);

// The first tasks of a selection, for commands that show each at length.
struct ChosenTasks {
  std::vector<specs::TaskId> tasks;
  std::uint64_t all = 0;  // that are selected
  bool is_one() const { return all == 1; }
};
// At most `limit` (0: all). Error{usage} if there is none.
ChosenTasks chosen_tasks(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options,
                         std::uint64_t limit);
// "the first 20 of 109; --limit 0 shows all", if not all were shown.
void print_rest(const ChosenTasks& chosen);
// The one task that the options select. Error{usage} for none and for several, with the number.
specs::TaskId single_task(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options);

// ---- done_tasks.cc: which of the done tasks `wflow redo` and `wflow doctor` run again

// The chosen tasks that are done, in parts of neighbours; with --missing also what their outputs were made
// of. Error{usage} for an unknown step or an invalid range or expression.
engine::ArrayParts done_tasks(const specs::Plan& plan, engine::Client& client,
                              const SelectionOptions& options);

// The done tasks among these.
engine::ArrayParts done_parts(engine::Client& client, const std::vector<Stretch>& stretches);

// Tasks that are recorded as done and whose MERLIN_FINISHED is missing from their directory. Tasks that never
// write a marker (exit codes 103 and 105) are not among them. Takes one look at the file system for each done
// task.
std::vector<std::pair<engine::ArrayId, engine::Range>> lost_markers(const specs::Plan& plan,
                                                                    engine::Client& client);

}  // namespace wflow::cli
