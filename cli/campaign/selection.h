// SPDX-License-Identifier: Apache-2.0
// Which tasks of a campaign a command means. Options and --where (wflow tasks) are evaluated page by page, so
// that the first hundred of a million are found without looking at the rest.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/query/client.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/states.h"
#include "engine/schedule/types.h"
#include "engine/update/changes.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

struct SelectionOptions {
  std::string step;
  std::vector<std::string> states;
  std::optional<int> exit_code;
  std::string worker;
  std::string range;     // A:B
  std::string duration;  // ">2"
  std::string where;
  // Rows contain the usage of the last execution; else only if the selection needs it.
  bool with_usage = false;
  bool few = false;  // for a terminal, which shows a hundred rows
};
void add_selection(CLI::App& command, SelectionOptions& options);
// Without --state and --exit-code: for commands that fix the states themselves.
void add_chosen(CLI::App& command, SelectionOptions& options);

// The known facts of a task; unknown ones are absent. An execution of less than a millisecond has no record,
// and of very many tasks only a sample has one (docs/database.md).
struct TaskRow {
  specs::ArrayId array = 0;
  specs::Element element = 0;
  engine::ElementState state = engine::ElementState::blocked;
  std::uint64_t attempts = 0;
  std::optional<int> exit_code;
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

// "3:7", "3:", ":7", "5": first and last element. Throws Error{usage}.
engine::Range parse_range(const std::string& text);

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

// "[CAMPAIGN] TASK" on the command line: one word is a task of the newest campaign here.
struct TaskArguments {
  std::string first, second;
  std::string campaign() const { return second.empty() ? std::string() : first; }
  const std::string& task() const { return second.empty() ? first : second; }
};
// `arguments` must outlive the parsing.
void add_task_arguments(CLI::App& command, TaskArguments& arguments);

// ---- done_tasks.cc: which of the done tasks `wflow redo` and `wflow doctor` run again

struct TaskChoice {
  std::vector<std::string> words;  // [CAMPAIGN] [STEP[/RANGE]]
  std::string step;                // --step
  std::string where;               // --where
  bool missing = false;            // --missing
};

// Parsing the words sets `campaign`.
void add_task_choice(CLI::App& command, TaskChoice& choice, std::string& campaign);

// The chosen tasks that are done, in parts of neighbours. Error{usage} for an unknown step or an invalid
// range or expression.
engine::ArrayParts done_tasks(const specs::Plan& plan, engine::Client& client, const TaskChoice& choice);

// The done elements of a range in each of these arrays, which need not be neighbours.
engine::ArrayParts done_parts(engine::Client& client, const std::vector<specs::ArrayId>& arrays,
                              engine::Range range);

// Tasks that are recorded as done and whose MERLIN_FINISHED is missing from their directory. Tasks that never
// write a marker (exit codes 103 and 105) are not among them. Takes one look at the file system for each done
// task.
std::vector<std::pair<engine::ArrayId, engine::Range>> lost_markers(const specs::Plan& plan,
                                                                    engine::Client& client);

}  // namespace wflow::cli
