// SPDX-License-Identifier: Apache-2.0
// The first view: the progress of each step, and the latest events. Also the list of several campaigns.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli/top/chart.h"
#include "cli/top/render.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

namespace {

using engine::ElementState;
using wire::StepStatus;

constexpr int kSparkColumns = 16;
constexpr int kLeastLatest = 4;

GridText number_cell(std::uint64_t count, Ink ink) {
  return {count > 0 ? brief_count(count) : std::string("-"), count > 0 ? ink : Ink::dim};
}

GridText left_cell(const TopData& data, const StepStatus& step) {
  if (!step.held.empty()) return {"held", Ink::bad};
  if (step.ended() == step.elements) return {"done", Ink::good};
  const auto left_s = left_of(data.status, step);
  return left_s ? GridText{brief_duration(*left_s)} : GridText{"-", Ink::dim};
}

GridText duration_cell(double seconds) {
  return {seconds > 0 ? brief_duration(seconds) : std::string("-"), seconds > 0 ? Ink::plain : Ink::dim};
}

GridText memory_cell(const StepStatus& step, const TopData& data) {
  const double peak = step.usage.peak_bytes.p95;
  if (peak <= 0) return {"-", Ink::dim};
  const auto needs = data.needs.find(step.name);
  const std::int64_t limit = needs == data.needs.end() ? 0 : needs->second.memory_bytes;
  std::string text = text::format_bytes(static_cast<std::uint64_t>(peak));
  if (limit > 0) text += "/" + text::format_bytes(static_cast<std::uint64_t>(limit));
  return {std::move(text), limit > 0 && peak > 0.9 * static_cast<double>(limit) ? Ink::warning : Ink::plain};
}

std::string spark_of(const StepStatus& step, const TopData& data, Charset charset) {
  const auto rates = data.rates.find(step.name);
  return rates == data.rates.end() ? std::string() : sparkline_of(rates->second, kSparkColumns, charset);
}

// Adds a column with a cell for each entry that `entries` point to.
void add_column(GridTable& table, const auto& entries, const char* head, int priority, bool right,
                auto cell) {
  GridColumn& added = table.columns.emplace_back();
  added.head = head;
  added.priority = priority;
  added.right = right;
  for (const auto* entry : entries) added.cells.push_back(cell(*entry));
}

GridTable steps_table(const std::vector<const StepStatus*>& steps, const TopData& data,
                      const ViewState& state, Charset charset) {
  GridTable table;
  table.entries = steps.size();
  table.selected = state.selected_here();
  const auto column = [&](const char* head, int priority, bool right, auto cell) {
    add_column(table, steps, head, priority, right, cell);
  };
  column("step", 0, false, [](const StepStatus& s) { return GridText{s.name, Ink::bold}; });
  GridColumn& bar = table.columns.emplace_back();
  bar.head = "progress";
  bar.priority = 1;
  bar.least = 10;
  bar.most = 40;
  bar.draw = [&steps](Grid& grid, int row, std::size_t entry, int at, int columns) {
    put_bar(grid, row, at, columns, shares_of(*steps[entry]));
  };
  column("done", 2, true, [](const StepStatus& s) { return GridText{text_of(counts_of(s), true)}; });
  column("failed", 3, true, [](const StepStatus& s) { return number_cell(s.failed(), Ink::bad); });
  column("assigned", 5, true,
         [](const StepStatus& s) { return number_cell(s.count(ElementState::leased), Ink::accent); });
  column("retry", 9, true,
         [](const StepStatus& s) { return number_cell(s.count(ElementState::delayed), Ink::warning); });
  column("waiting", 8, true, [](const StepStatus& s) {
    return number_cell(s.count(ElementState::blocked) + s.count(ElementState::ready), Ink::plain);
  });
  column("rate", 4, true, [](const StepStatus& s) {
    const std::string rate = reports_itself(s) ? std::string() : brief_rate(s.rate_per_s);
    return GridText{rate.empty() ? "-" : rate, rate.empty() ? Ink::dim : Ink::plain};
  });
  column("history", 10, false, [&](const StepStatus& s) {
    return GridText{spark_of(s, data, charset), Ink::accent};
  });
  column("median", 6, true, [](const StepStatus& s) { return duration_cell(s.usage.duration_s.median); });
  column("p95", 7, true, [](const StepStatus& s) { return duration_cell(s.usage.duration_s.p95); });
  column("memory p95", 11, true, [&](const StepStatus& s) { return memory_cell(s, data); });
  column("left", 2, true, [&](const StepStatus& s) { return left_cell(data, s); });
  return table;
}

// A latest event, from the failures or from the history.
struct Happening {
  double time_s = 0;
  std::string text;
  Ink ink = Ink::plain;
};

std::vector<Happening> happenings(const TopData& data) {
  const WorkerNames names = worker_names(data);
  std::vector<Happening> list;
  for (const auto& failure : data.status.failures)
    list.push_back({failure.time_s + failure.duration_s, failure_sentence(failure, names), Ink::bad});
  for (const auto& row : data.status.history) list.push_back({row.time_s, names.in(row.text), Ink::plain});
  for (const auto& slow : data.status.slow) {
    list.push_back({data.now_s,
                    fmt::format("{} has run for {}; 95 % of its step take at most {}", slow.task,
                                brief_duration(slow.running_s), brief_duration(slow.usual_s)),
                    Ink::warning});
  }
  for (const auto& step : data.status.steps) {
    if (!step.held.empty())
      list.push_back({data.now_s, fmt::format("{} is held: {}", step.name, step.held), Ink::bad});
  }
  for (const auto& allocation : data.status.allocations.allocations) {
    if (!allocation.never_clears.empty())
      list.push_back(
          {data.now_s,
           fmt::format("allocation {} will never start: {}", allocation.id, allocation.never_clears),
           Ink::bad});
  }
  std::ranges::stable_sort(list, std::greater<>(), &Happening::time_s);
  return list;
}

}  // namespace

void put_latest(Grid& grid, int row, int rows, const TopData& data) {
  if (rows < 2) return;
  grid.put(row, 1, "latest", Ink::dim);
  const auto list = happenings(data);
  const int columns = grid.width() - 12;
  for (int i = 0; i < rows - 1 && static_cast<std::size_t>(i) < list.size(); ++i) {
    const Happening& happening = list[static_cast<std::size_t>(i)];
    grid.put(row + 1 + i, 1, time_of_day(happening.time_s), Ink::dim);
    grid.put(row + 1 + i, 11, cut_to_width(happening.text, columns, grid.charset()), happening.ink);
  }
}

void put_steps(Grid& grid, int row, int rows, const TopData& data, const ViewState& state) {
  const auto steps = listed_steps(data, state);
  const int used =
      put_table(grid, row, std::max(rows - kLeastLatest, 3), steps_table(steps, data, state, grid.charset()));
  put_latest(grid, row + used + 1, rows - used - 1, data);
}

void put_campaigns(Grid& grid, int row, int rows, const TopData& data, const ViewState& state) {
  const auto listed = listed_campaigns(data, state);
  if (listed.empty()) {
    grid.put(row, 1, "no campaign; start one with: wflow run STUDY.yaml");
    return;
  }
  GridTable table;
  table.entries = listed.size();
  table.selected = state.selected_here();
  const auto column = [&](const char* head, int priority, bool right, auto cell) {
    add_column(table, listed, head, priority, right, cell);
  };
  column("campaign", 0, false, [](const CampaignRow& r) { return GridText{r.name, Ink::bold}; });
  column("state", 1, false, [](const CampaignRow& r) {
    const Ink ink = r.state == "finished" ? Ink::good : r.state == "running" ? Ink::accent : Ink::warning;
    return GridText{r.state, ink};
  });
  GridColumn& bar = table.columns.emplace_back();
  bar.head = "progress";
  bar.priority = 3;
  bar.least = 8;
  bar.most = 30;
  bar.draw = [&listed](Grid& target, int at_row, std::size_t entry, int at, int columns) {
    const CampaignRow& r = *listed[entry];
    Shares shares{};
    const auto set = [&](Part part, std::uint64_t tasks) {
      shares[static_cast<std::size_t>(part)] = static_cast<double>(tasks);
    };
    set(Part::done, r.done);
    set(Part::failed, r.failed);
    set(Part::skipped, r.skipped);
    set(Part::waiting, r.elements - std::min(r.elements, r.done + r.failed + r.skipped));
    put_bar(target, at_row, at, columns, shares);
  };
  column("tasks", 2, true,
         [](const CampaignRow& r) { return GridText{brief_count(r.done) + "/" + brief_count(r.elements)}; });
  column("failed", 4, true, [](const CampaignRow& r) { return number_cell(r.failed, Ink::bad); });
  column("left", 5, true,
         [](const CampaignRow& r) { return GridText{r.left_s ? brief_duration(*r.left_s) : "-"}; });
  column("started", 6, true, [&](const CampaignRow& r) {
    return GridText{r.started_s > 0 ? day_and_time(r.started_s, data.now_s) : "-", Ink::dim};
  });
  put_table(grid, row, rows, table);
}

}  // namespace wflow::cli::top
