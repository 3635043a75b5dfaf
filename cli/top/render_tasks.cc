// SPDX-License-Identifier: Apache-2.0
// The tasks of one step: those that run, that have failed, and the slowest; all, some of them, or by node.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cli/top/chart.h"
#include "cli/top/render.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

namespace {

GridText state_cell(const TaskRow& row) {
  switch (row.kind) {
    case TaskRow::Kind::running:
      return {"running", Ink::accent};
    case TaskRow::Kind::failed:
      return {"failed", Ink::bad};
    case TaskRow::Kind::ended:
      break;
  }
  return {"ended", Ink::plain};
}

GridTable tasks_table(const std::vector<TaskRow>& rows, const TopData& data, const ViewState& state) {
  const WorkerNames names = worker_names(data);
  GridTable table;
  table.entries = rows.size();
  table.selected = state.selected_here();
  const auto column = [&](const char* head, int priority, bool right, auto cell) {
    GridColumn& added = table.columns.emplace_back();
    added.head = head;
    added.priority = priority;
    added.right = right;
    for (const TaskRow& row : rows) added.cells.push_back(cell(row));
  };
  column("task", 0, false, [](const TaskRow& r) { return GridText{r.task, Ink::bold}; });
  column("state", 1, false, state_cell);
  column("time", 1, true, [&](const TaskRow& r) {
    const bool runs = r.kind == TaskRow::Kind::running;
    return GridText{brief_duration(runs ? std::max(0.0, data.now_s - r.began_s) : r.seconds)};
  });
  column("node", 2, false, [&](const TaskRow& r) { return GridText{names.of(r.worker), Ink::dim}; });
  column("began", 3, true, [&](const TaskRow& r) {
    return GridText{day_and_time(r.began_s, data.now_s), Ink::dim};
  });
  column("reason", 4, false, [](const TaskRow& r) { return GridText{printable(r.reason), Ink::bad}; });
  table.columns.back().shrinks = true;
  return table;
}

// "simulate: 96 running, 3 failed; the slowest of 612,345 executions"
std::string summary_of(const StepTasks& tasks, const TopData& data) {
  const auto running = std::ranges::count_if(data.running, [&](const wire::RunningView& task) {
    return task.array >= tasks.first_array && task.array <= tasks.last_array;
  });
  std::string text = fmt::format(
      "{}: {}{} running, {} failed", tasks.step, data.running_total > data.running.size() ? "at least " : "",
      text::format_count(static_cast<std::uint64_t>(running)), text::format_count(tasks.failed.size()));
  if (tasks.compared > 0)
    text += fmt::format("; slowest of {}{}", tasks.complete || tasks.loading ? "" : "the first ",
                        counted(tasks.compared, "execution"));
  return tasks.loading ? text + " (reading)" : text;
}

}  // namespace

void put_tasks(Grid& grid, int row, int rows, const TopData& data, const ViewState& state) {
  if (!data.tasks) {
    grid.put(row, 1, "reading the tasks of the step");
    return;
  }
  grid.put(row, 1, cut_to_width(summary_of(*data.tasks, data), grid.width() - 2, grid.charset()), Ink::bold);
  const auto listed = listed_tasks(data, state);
  if (listed.empty()) {
    const bool hidden = !state.filter.empty() || state.sort_of(View::tasks) > 0;
    grid.put(row + 2, 1,
             data.tasks->loading ? "reading"
             : hidden            ? "no task passes the filter and the order"
                                 : "no task has run for a millisecond yet",
             Ink::dim);
    return;
  }
  put_table(grid, row + 1, rows - 1, tasks_table(listed, data, state));
}

}  // namespace wflow::cli::top
