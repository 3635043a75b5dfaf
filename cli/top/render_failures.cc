// SPDX-License-Identifier: Apache-2.0
// The third view: failed tasks, and the end of the output of the selected one. Also the pane for whole
// texts, and the help.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli/top/chart.h"
#include "cli/top/render.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

namespace {

constexpr int kDetailRows = 6;

GridTable failures_table(const std::vector<const wire::FailureView*>& failures, const TopData& data,
                         std::size_t selected) {
  const WorkerNames names = worker_names(data);
  GridTable table;
  table.entries = failures.size();
  table.selected = selected;
  const auto column = [&](const char* head, int priority, bool right, auto cell) {
    GridColumn& added = table.columns.emplace_back();
    added.head = head;
    added.priority = priority;
    added.right = right;
    for (const wire::FailureView* failure : failures) added.cells.push_back(cell(*failure));
  };
  column("task", 0, false, [](const auto& f) { return GridText{f.task, Ink::bold}; });
  column("reason", 1, false, [](const auto& f) { return GridText{f.reason, Ink::bad}; });
  column("when", 2, true, [&](const auto& f) {
    return GridText{day_and_time(f.time_s + f.duration_s, data.now_s), Ink::dim};
  });
  column("after", 3, true, [](const auto& f) { return GridText{brief_duration(f.duration_s)}; });
  column("tries", 5, true, [](const auto& f) { return GridText{std::to_string(f.attempt + 1)}; });
  column("worker", 4, false, [&](const auto& f) { return GridText{names.of(f.worker), Ink::dim}; });
  column("said", 6, false, [](const auto& f) {
    return GridText{cut_to_width(printable(last_line_of(f.detail)), 60, Charset::utf8)};
  });
  return table;
}

void put_detail(Grid& grid, int row, int rows, const wire::FailureView& failure) {
  grid.put(
      row, 1,
      cut_to_width(fmt::format("the end of what {} printed", failure.task), grid.width() - 2, grid.charset()),
      Ink::dim);
  std::vector<std::string> lines = text::split(text::trim(failure.detail), '\n');
  if (lines.size() == 1 && lines.front().empty()) lines = {"(nothing)"};
  const auto shown = std::min(lines.size(), static_cast<std::size_t>(std::max(rows - 1, 0)));
  for (std::size_t i = 0; i < shown; ++i) {
    const std::string line = printable(lines[lines.size() - shown + i]);
    grid.put(row + 1 + static_cast<int>(i), 3, cut_to_width(line, grid.width() - 4, grid.charset()));
  }
}

}  // namespace

void put_failures(Grid& grid, int row, int rows, const TopData& data, const ViewState& state) {
  const auto failures = listed_failures(data, state);
  if (failures.empty()) {
    const std::uint64_t failed = data.status.failed();
    const bool hidden = !data.status.failures.empty();
    grid.put(row, 1,
             hidden       ? "no failure passes the filter"
             : failed > 0 ? "the failures are not listed any more"
                          : "nothing has failed",
             failed > 0 ? Ink::warning : Ink::good);
    put_latest(grid, row + 2, rows - 2, data);
    return;
  }
  const int detail = std::min(kDetailRows, rows / 2);
  const int used =
      put_table(grid, row, rows - detail - 1, failures_table(failures, data, state.selected_here()));
  put_detail(grid, row + used + 1, detail, *failures[std::min(state.selected_here(), failures.size() - 1)]);
  const int after = row + used + 1 + detail + 1;
  put_latest(grid, after, row + rows - after, data);
}

void put_pane(Grid& grid, int row, int rows, const TopData& data, const ViewState& state) {
  const auto& lines = data.pane.lines;
  const std::string place = lines.empty()
                                ? std::string("empty")
                                : fmt::format("line {} of {}", state.selected_here() + 1, lines.size());
  grid.put(row, 1, cut_to_width(data.pane.title, grid.width() - width_of(place) - 4, grid.charset()),
           Ink::bold);
  grid.put_right(row, grid.width() - 1, place, Ink::dim);
  const std::size_t first = first_shown(lines.size(), state.selected_here(), rows - 1);
  for (int i = 0; i < rows - 1 && first + static_cast<std::size_t>(i) < lines.size(); ++i) {
    const std::size_t at = first + static_cast<std::size_t>(i);
    const Ink ink = line_matches(lines[at], state.search) ? Ink::warning : Ink::plain;
    if (at == state.selected_here()) grid.put(row + 1 + i, 0, ">", Ink::accent);
    grid.put(row + 1 + i, 2, cut_to_width(lines[at], grid.width() - 3, grid.charset()), ink);
  }
}

void put_help(Grid& grid, int row, int rows, const TopData&, const ViewState&) {
  static const std::vector<std::pair<std::string, std::string>> kKeys = {
      {"1 2 3 4, Tab", "steps, workers, failures, training"},
      {"up down, j k", "select; also PageUp PageDown Home End"},
      {"Enter", "a step's tasks; there a task's story"},
      {"l", "what a task printed; / searches, n N go on"},
      {"e", "explain: why a task waits, failed, moved"},
      {"r", "run a failed task again, or all of a step"},
      {"c", "cancel what waits of a step, or a task"},
      {"p", "pause the campaign, and go on"},
      {"s, f", "sort; only names that contain a text"},
      {"space, + -", "replay: pause; faster, slower; arrows move"},
      {"Esc, q", "back; q quits: the campaign goes on"},
      {"bars", "done, failed (x), skipped (-), assigned,"},
      {"", "to retry (~), waiting"}};
  for (int i = 0; i < rows && static_cast<std::size_t>(i) < kKeys.size(); ++i) {
    const auto& [key, what] = kKeys[static_cast<std::size_t>(i)];
    grid.put(row + i, 2, key, Ink::bold);
    grid.put(row + i, 17, cut_to_width(what, grid.width() - 18, grid.charset()));
  }
}

}  // namespace wflow::cli::top
