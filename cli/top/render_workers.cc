// SPDX-License-Identifier: Apache-2.0
// The second view: allocations, the workers in each, and what runs on each worker.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli/top/chart.h"
#include "cli/top/render.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

namespace {

constexpr int kBusyBar = 12;
constexpr int kWorkerColumns = 16;
constexpr double kSilent_s = 5;  // heartbeats come every second, or every third

std::string allocation_text(const wire::AllocationView& allocation, double now_s) {
  std::string text = fmt::format("{} {}: {}", allocation.scheduler,
                                 allocation.id.empty() ? allocation.token : allocation.id, allocation.state);
  text += fmt::format(", {} node{}", allocation.nodes, allocation.nodes == 1 ? "" : "s");
  if (allocation.state == "running") {
    text += fmt::format(", {} worker{}", allocation.workers, allocation.workers == 1 ? "" : "s");
    if (allocation.ends_s > 0)
      text += fmt::format(", {} left", brief_duration(std::max(0.0, allocation.ends_s - now_s)));
  }
  if (allocation.leaving) text += ", is being given back";
  if (!allocation.reason.empty()) text += ": " + allocation.reason;
  return text;
}

double rate_of(const TopData& data, const std::string& worker) {
  const auto found = data.worker_rates.find(worker);
  return found == data.worker_rates.end() ? 0 : found->second;
}

void put_worker(Grid& grid, int row, int column, const wire::WorkerStatus& worker, const TopData& data) {
  const auto measured = data.cores_used.by_worker.find(worker.id);
  const double used = measured != data.cores_used.by_worker.end()
                          ? measured->second
                          : std::min(static_cast<double>(worker.running), static_cast<double>(worker.cores));
  const double rate_per_s = rate_of(data, worker.id);
  put_fraction(grid, row, column, kBusyBar, used / std::max(worker.cores, 1), Ink::accent);
  std::string text = fmt::format("{:.0f}/{} core{}", used, worker.cores, worker.cores == 1 ? "" : "s");
  if (worker.leased > worker.running)
    text += fmt::format(", {} queued", brief_count(worker.leased - worker.running));
  const std::string rate = rate_per_s > 0 ? ", " + brief_rate(rate_per_s) : std::string();
  if (column + kBusyBar + 1 + width_of(text + rate) <= grid.width()) text += rate;
  int at = grid.put(row, column + kBusyBar + 1, text) + 2;
  if (worker.draining) at = grid.put(row, at, "leaving", Ink::warning) + 2;
  if (worker.silent_s > kSilent_s)
    grid.put(row, at, fmt::format("silent for {}", brief_duration(worker.silent_s)), Ink::bad);
}

const wire::StepStatus* step_of(const TopData& data, const std::string& task) {
  const std::string name = task.substr(0, task.find('/'));
  const auto found = std::ranges::find(data.status.steps, name, &wire::StepStatus::name);
  return found == data.status.steps.end() ? nullptr : &*found;
}

void put_task(Grid& grid, int row, int column, const wire::RunningView& task, const TopData& data) {
  constexpr int kNameColumns = 28;
  const double seconds = std::max(0.0, data.now_s - task.started_s);
  grid.put(row, column, cut_left(task.task, kNameColumns, grid.charset()));
  const wire::StepStatus* step = step_of(data, task.task);
  const double usual = step != nullptr ? step->usage.duration_s.p95 : 0;
  const bool slow = usual > 0 && seconds > 5 * usual;
  std::string text = "for " + brief_duration(seconds);
  if (usual > 0) text += fmt::format(" (95 %: {})", brief_duration(usual));
  const double peak = step != nullptr ? step->usage.peak_bytes.p95 : 0;
  const auto needs = data.needs.find(task.task.substr(0, task.task.find('/')));
  const auto limit = needs == data.needs.end() ? 0 : needs->second.memory_bytes;
  const int at = grid.put(row, column + kNameColumns + 1, text, slow ? Ink::warning : Ink::plain) + 2;
  // The task's own memory once it was measured; until then the usual memory of the step.
  const auto own = static_cast<double>(task.memory_bytes);
  const double shown = own > 0 ? own : peak;
  if (shown <= 0 && limit <= 0) return;
  std::string memory =
      shown > 0 ? text::format_bytes(static_cast<std::uint64_t>(shown)) : std::string("memory");
  if (own <= 0 && peak > 0) memory += " usual";
  if (limit > 0) memory += " of " + text::format_bytes(static_cast<std::uint64_t>(limit));
  const bool much = limit > 0 && shown > 0.9 * static_cast<double>(limit);
  if (at + width_of(memory) < grid.width())
    grid.put(row, at, memory, much ? Ink::warning : own > 0 ? Ink::plain : Ink::dim);
}

// The branch of a tree in front of a row.
int put_branch(Grid& grid, int row, const std::vector<TreeRow>& rows, std::size_t at) {
  const int depth = rows[at].depth;
  if (depth == 0) return 2;
  const bool utf8 = grid.charset() == Charset::utf8;
  const bool last = at + 1 == rows.size() || rows[at + 1].depth < depth;
  const int column = 2 + 2 * (depth - 1);
  return grid.put(row, column, utf8 ? (last ? "└ " : "├ ") : (last ? "` " : "| "), Ink::dim);
}

}  // namespace

void put_workers(Grid& grid, int row, int rows, const TopData& data, const ViewState& state) {
  const auto tree = tree_rows(data, state);
  if (tree.empty()) {
    grid.put(row, 1, data.link == Link::live ? "no worker is connected" : "no workers: no coordinator runs");
    put_latest(grid, row + 2, rows - 2, data);
    return;
  }
  const WorkerNames names = worker_names(data);
  const std::uint64_t shown_tasks = data.running.size();
  const bool more = data.running_total > shown_tasks;
  const int shown = rows - (more ? 1 : 0);
  const std::size_t first = first_shown(tree.size(), state.selected_here(), shown);
  for (int i = 0; i < shown && first + static_cast<std::size_t>(i) < tree.size(); ++i) {
    const std::size_t at = first + static_cast<std::size_t>(i);
    const TreeRow& entry = tree[at];
    if (at == state.selected_here()) grid.put(row + i, 0, ">", Ink::accent);
    const int column = put_branch(grid, row + i, tree, at);
    if (entry.allocation != nullptr) {
      const bool runs = entry.allocation->state == "running";
      const std::string text = allocation_text(*entry.allocation, data.now_s);
      grid.put(row + i, column, cut_to_width(text, grid.width() - column, grid.charset()),
               runs ? Ink::bold : Ink::warning);
    } else if (entry.worker != nullptr) {
      const int after = grid.put(
          row + i, column, cut_left(names.of(entry.worker->id), kWorkerColumns, grid.charset()), Ink::bold);
      put_worker(grid, row + i, std::max(after + 1, column + 12), *entry.worker, data);
    } else {
      put_task(grid, row + i, column, *entry.task, data);
    }
  }
  if (more) {
    grid.put(row + rows - 1, 2,
             fmt::format("and {}", counted(data.running_total - shown_tasks, "more running task")), Ink::dim);
  }
}

}  // namespace wflow::cli::top
