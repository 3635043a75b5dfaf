// SPDX-License-Identifier: Apache-2.0
// The frame around the views: header, tabs, footer.
#include "cli/top/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "cli/top/chart.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

namespace {

constexpr int kHeaderRows = 4;
constexpr int kGreatestReplayBar = 60;
constexpr double kFewHours = 1;  // shorter times are shown in minutes

Ink ink_of(engine::CampaignState state) {
  using engine::CampaignState;
  switch (state) {
    case CampaignState::running:
      return Ink::accent;
    case CampaignState::finished:
      return Ink::good;
    case CampaignState::finished_with_failures:
    case CampaignState::cancelled:
      return Ink::bad;
    default:
      return Ink::warning;
  }
}

// Puts as many parts of a line as fit.
int put_parts(Grid& grid, int row, const std::vector<std::pair<std::string, Ink>>& parts) {
  int column = 1;
  for (const auto& [part, ink] : parts) {
    if (part.empty()) continue;
    if (column > 1 && column + 2 + width_of(part) > grid.width()) continue;
    if (column > 1) column += 2;
    column = grid.put(row, column, cut_to_width(part, grid.width() - column, grid.charset()), ink);
  }
  return column;
}

void put_name(Grid& grid, const TopData& data) {
  const auto& status = data.status;
  const std::string clock = time_of_day(data.now_s);
  grid.put_right(0, grid.width() - 1, clock, Ink::dim);
  const std::string state = spaced(name_of(status.state));
  std::string word;
  if (data.link == Link::none) word = "no coordinator";
  if (data.link == Link::replay) word = "replay";
  const int columns = grid.width() - 6 - width_of(clock) - width_of(state) - width_of(word);
  int column = grid.put(0, 1, cut_left(status.name, std::max(columns, 8), grid.charset()), Ink::title) + 2;
  if (!word.empty())
    column = grid.put(0, column, word, data.link == Link::none ? Ink::bad : Ink::warning) + 2;
  grid.put(0, column, state, ink_of(status.state));
}

std::string end_text(const TopData& data) {
  if (data.link == Link::at_rest)
    return data.status.time_s > 0 ? "ended " + day_and_time(data.status.time_s, data.now_s) : "";
  if (data.link != Link::live) return {};
  const auto forecast = forecast_end(data);
  if (!forecast) return {};
  return fmt::format("ends {}{} (in {})", forecast->at_least ? "after " : "",
                     day_and_time(forecast->time_s, data.now_s),
                     brief_duration(std::max(0.0, forecast->time_s - data.now_s)));
}

void put_counts(Grid& grid, const TopData& data) {
  const Overall overall = overall_of(data.status);
  put_parts(grid, 1,
            {{fmt::format("{} % done: {} of {}", overall.percent, text::format_count(overall.done),
                          counted(overall.elements, "task")),
              Ink::plain},
             {overall.failed > 0 ? text::format_count(overall.failed) + " failed" : "", Ink::bad},
             {overall.skipped > 0 ? text::format_count(overall.skipped) + " skipped" : "", Ink::warning},
             {"for " + brief_duration(data.status.elapsed_s), Ink::plain},
             {end_text(data), Ink::plain}});
}

void put_resources(Grid& grid, const TopData& data) {
  const auto& status = data.status;
  std::uint64_t busy = 0;
  std::uint64_t slots = 0;
  for (const auto& worker : status.workers) {
    busy += worker.running;
    slots += static_cast<std::uint64_t>(std::max(worker.cores, 0));
  }
  const double used_cores = data.cores_used.all.value_or(static_cast<double>(std::min(busy, slots)));
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  for (const auto& allocation : status.allocations.allocations) {
    running += allocation.state == "running" ? 1 : 0;
    waiting += allocation.state == "queued" || allocation.state == "intended" ? 1 : 0;
  }
  std::string hours;
  if (const auto used = node_hours(data)) {
    const bool few = used->used < kFewHours;
    const double unit = few ? 60 : 1;
    hours = fmt::format("node-{} {:.1f} used, {:.1f} idle", few ? "minutes" : "hours", used->used * unit,
                        used->idle * unit);
  }
  std::string workers;
  if (status.workers_total > 0) {
    workers = fmt::format("{}, {:.{}f} of {} used", counted(status.workers_total, "worker"), used_cores,
                          used_cores < 9.95 && std::abs(used_cores - std::round(used_cores)) >= 0.05 ? 1 : 0,
                          counted(slots, "core"));
  }
  std::string allocations;
  if (running + waiting > 0)
    allocations = fmt::format("allocations: {} running, {} queued", running, waiting);
  put_parts(grid, 2, {{workers, Ink::plain}, {hours, Ink::plain}, {allocations, Ink::plain}});
}

void put_tabs(Grid& grid, const TopData& data, const ViewState& state) {
  struct Tab {
    View view;
    std::string name;
  };
  const auto failed = data.status.failed();
  const std::vector<Tab> tabs = {{View::steps, "1 steps"},
                                 {View::workers, "2 workers"},
                                 {View::failures, failed > 0 ? "3 failures!" : "3 failures"},
                                 {View::training, "4 training"}};
  const View shown = state.view == View::pane || state.view == View::help ? state.before : state.view;
  const View tab_of_it = shown == View::tasks ? View::steps : shown;
  int column = 1;
  for (const Tab& tab : tabs) {
    const bool chosen = tab.view == tab_of_it;
    column = grid.put(3, column, chosen ? "[" + tab.name + "]" : " " + tab.name + " ",
                      chosen ? Ink::bold : Ink::dim) +
             1;
  }
  std::string right;
  const std::string& order = sort_names(shown)[static_cast<std::size_t>(state.sort_of(shown))];
  if (state.sort_of(shown) > 0) right = (shown == View::tasks && order != "node" ? "" : "by ") + order;
  if (!state.filter.empty()) right += (right.empty() ? "" : ", ") + ("filter: " + state.filter);
  if (!right.empty() && column + width_of(right) < grid.width())
    grid.put_right(3, grid.width() - 1, right, Ink::warning);
}

// The keys of the view, the important ones first.
std::vector<std::string> key_hints(const TopData& data, const ViewState& state) {
  switch (state.view) {
    case View::pane:
      return {"/ search", "n next", "N previous", "q back"};
    case View::help:
      return {"q back"};
    case View::campaigns:
      return {"Enter open", "s sort", "f filter", "? help", "q quit"};
    default:
      break;
  }
  if (data.replay && state.view != View::tasks)
    return {"space pause", "left/right seek", "+/- speed", "Tab view", "? help", "q quit"};
  if (state.view == View::tasks)
    return {"Enter story", "l log", "s running/slowest/failed/node", "r retry", "c cancel", "f filter",
            "? help",      "q back"};
  if (state.view == View::steps)
    return {"Enter tasks", "Tab view", "r retry", "c cancel", "s sort",
            "f filter",    "p pause",  "? help",  "q quit"};
  if (state.view == View::failures)
    return {"l log", "e explain", "r retry", "s sort", "f filter", "p pause", "Tab view", "? help", "q quit"};
  if (state.view == View::workers)
    return {"l log",   "e explain", "c cancel", "s sort", "f filter",
            "p pause", "Tab view",  "? help",   "q quit"};
  return {"Tab view", "l log", "e explain", "s sort", "f filter", "p pause", "? help", "q quit"};
}

// Removes hints before the last two until the line fits.
std::string hint_line(std::vector<std::string> hints, int width) {
  constexpr std::size_t kKept = 2;
  while (hints.size() > kKept && width_of(text::join(hints, "  ")) > width)
    hints.erase(hints.end() - static_cast<std::ptrdiff_t>(kKept) - 1);
  return text::join(hints, "  ");
}

void put_footer(Grid& grid, const TopData& data, const ViewState& state) {
  const int row = grid.height() - 1;
  const auto fit = [&](const std::string& text) {
    return cut_to_width(text, grid.width() - 2, grid.charset());
  };
  if (state.prompt == Prompt::confirm) {
    grid.put(row, 1, fit(state.question + " y/n"), Ink::warning);
  } else if (state.prompt != Prompt::none) {
    const std::string what = state.prompt == Prompt::filter ? "filter: " : "search: ";
    grid.put(row, 1, fit(what + state.typed + "_"), Ink::bold);
  } else if (!data.notice.empty()) {
    grid.put(row, 1, fit(data.notice), Ink::warning);
  } else {
    grid.put(row, 1, hint_line(key_hints(data, state), grid.width() - 2), Ink::dim);
  }
}

void put_replay_bar(Grid& grid, int row, const ReplayClock& clock) {
  const double whole = clock.end_s - clock.begin_s;
  const int columns = std::min(grid.width() / 2, kGreatestReplayBar);
  put_fraction(grid, row, 1, columns, whole > 0 ? (clock.at_s - clock.begin_s) / whole : 1, Ink::accent);
  grid.put(row, columns + 3,
           fmt::format("{} of {}  {}", brief_duration(clock.at_s - clock.begin_s), brief_duration(whole),
                       clock.paused ? "paused" : fmt::format("{:.4g}x", clock.speed)),
           Ink::warning);
}

void put_view(Grid& grid, int row, int rows, const TopData& data, const ViewState& state) {
  switch (state.view) {
    case View::steps:
      return put_steps(grid, row, rows, data, state);
    case View::workers:
      return put_workers(grid, row, rows, data, state);
    case View::failures:
      return put_failures(grid, row, rows, data, state);
    case View::training:
      return put_trainings(grid, row, rows, data, state);
    case View::campaigns:
      return put_campaigns(grid, row, rows, data, state);
    case View::tasks:
      return put_tasks(grid, row, rows, data, state);
    case View::pane:
      return put_pane(grid, row, rows, data, state);
    case View::help:
      return put_help(grid, row, rows, data, state);
  }
}

}  // namespace

int page_rows(int height) {
  return std::max(height - kHeaderRows - 3, 1);
}

Grid render(const TopData& data, const ViewState& wanted, int width, int height, Charset charset) {
  Grid grid(width, height, charset);
  if (width < kLeastWidth || height < kLeastHeight) {
    grid.put(0, 0, fmt::format("wflow top needs {} x {} cells", kLeastWidth, kLeastHeight));
    return grid;
  }
  ViewState state = wanted;
  keep_in_bounds(state, data);
  if (state.view == View::campaigns) {
    grid.put(0, 1, fmt::format("{} campaign{}", data.campaigns.size(), data.campaigns.size() == 1 ? "" : "s"),
             Ink::title);
    grid.put_right(0, width - 1, time_of_day(data.now_s), Ink::dim);
    put_campaigns(grid, 2, height - 3, data, state);
  } else {
    put_name(grid, data);
    put_counts(grid, data);
    put_resources(grid, data);
    put_tabs(grid, data, state);
    int rows = height - kHeaderRows - 1;
    if (data.replay) put_replay_bar(grid, height - 2, *data.replay);
    if (data.replay) --rows;
    put_view(grid, kHeaderRows, rows, data, state);
  }
  put_footer(grid, data, state);
  return grid;
}

}  // namespace wflow::cli::top
