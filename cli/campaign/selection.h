// SPDX-License-Identifier: Apache-2.0
// Which tasks of a campaign are meant (wflow tasks): options and --where, evaluated page by page, so that the
// first hundred of a million are found without looking at the rest.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/query/client.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/states.h"
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
  // Rows of tasks that ran come with what their last execution used; else only where the selection asks for
  // it.
  bool with_usage = false;
  bool few = false;  // for a person, who looks at a hundred rows
};
void add_selection(CLI::App& command, SelectionOptions& options);
// Without --state and --exit-code: for commands that say themselves in which states a task must be.
void add_chosen(CLI::App& command, SelectionOptions& options);

// A task with what is known of it; the optional ones are absent where nothing is: an execution of less than a
// millisecond has no record, and of very many tasks a sample has one (docs/database.md).
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
  // What people are shown: that of `state`, or "missing" where the sample's output was not usable.
  std::string state_name() const;
  bool missing = false;  // done, and a conversion could not use the output
  // Of a missing one: which conversion, and why. Of one that failed: the last line of what it printed.
  std::string detail;
  std::optional<engine::TaskUsage> used;  // by the last execution that has ended; of a bundle: together
};

// "3:7", "3:", ":7", "5": first and last element. Throws Error{usage}.
engine::Range parse_range(const std::string& text);

// Calls visit for every task that is meant, in order, until it gives false.
void select_tasks(const specs::Plan& plan, engine::Client& client, const SelectionOptions& options,
                  const std::function<bool(const TaskRow&)>& visit);

// Adds at most `limit` of them (0: all) to a listing, which has found(), add(row) and finish(whether there
// are more).
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

// The selection as several, each with at most so many parts: a message has a largest size.
std::vector<engine::wire::Selection> in_messages(const engine::wire::Selection& selection, std::size_t parts);

}  // namespace wflow::cli
