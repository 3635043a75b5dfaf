// SPDX-License-Identifier: Apache-2.0
// The fourth view: loss curves, several trainings side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cli/top/chart.h"
#include "cli/top/data.h"
#include "cli/top/render.h"
#include "cli/top/state.h"

namespace wflow::cli::top {

namespace {

constexpr int kLeastPanel = 38;
constexpr std::size_t kMostPanels = 4;
constexpr int kEpochBar = 20;

// A part of the grid for one training.
struct Panel {
  int row, column, columns, rows;
};

double last_of(const wire::MetricCurve* curve) {
  return curve == nullptr ? std::nan("") : curve->points.back().value;
}

PlottedCurve plotted(const wire::MetricCurve& curve, bool by_epoch, Ink ink, char sign) {
  PlottedCurve plot;
  plot.ink = ink;
  plot.sign = sign;
  for (const auto& point : curve.points)
    plot.points.push_back({static_cast<double>(by_epoch ? point.epoch : point.step), point.value});
  return plot;
}

// The first two curves: losses where there are any.
std::vector<const wire::MetricCurve*> plotted_curves(const Training& training) {
  std::vector<const wire::MetricCurve*> curves(training.curves);
  if (curves.size() > 2) curves.resize(2);
  return curves;
}

// Puts "epoch 12/90" with a bar if the number of epochs is known.
void put_epoch(Grid& grid, const Panel& panel, const Training& training, const TopData& data) {
  std::uint64_t epoch = 0;
  for (const auto* curve : training.curves) epoch = std::max(epoch, curve->points.back().epoch);
  const std::string name = training.task.substr(0, training.task.find('/'));
  const auto step = std::ranges::find(data.status.steps, name, &wire::StepStatus::name);
  const bool told = step != data.status.steps.end() && step->elements == 1 && step->progress_total > 0;
  if (!told) {
    grid.put(panel.row, panel.column, fmt::format("epoch {}", epoch), Ink::plain, panel.columns);
    return;
  }
  const double share = static_cast<double>(step->progress_done) / static_cast<double>(step->progress_total);
  put_fraction(grid, panel.row, panel.column, std::min(kEpochBar, panel.columns / 2), share, Ink::good);
  grid.put(panel.row, panel.column + std::min(kEpochBar, panel.columns / 2) + 1,
           fmt::format("epoch {}, {}/{} {}", epoch, step->progress_done, step->progress_total,
                       step->progress_unit),
           Ink::plain, panel.columns - std::min(kEpochBar, panel.columns / 2) - 1);
}

// Puts the last values of the other metrics; known ones in words.
std::vector<std::string> facts_of(const Training& training, const TopData& data) {
  std::vector<std::string> facts;
  std::vector<const wire::MetricCurve*> shown = plotted_curves(training);
  for (const Quality& quality : qualities_of(training.curves)) {
    facts.push_back(text_of(quality));
    for (const auto* curve : training.curves) {
      if (curve->name.substr(0, curve->name.find('/')) == quality.name) shown.push_back(curve);
    }
  }
  const auto add = [&](std::string_view name, const char* format_word) {
    const double value = last_of(training.curve(name));
    if (std::isfinite(value)) facts.push_back(fmt::format("{} {:.4g}", format_word, value));
  };
  add("samples_per_second", "samples/s");
  add("gflops", "GFLOP/s");
  if (const double wait = last_of(training.curve("data_wait")); std::isfinite(wait))
    facts.push_back(fmt::format("data wait {:.1f} %", 100 * wait));
  if (const double exposed = last_of(training.curve("exposed_communication"));
      std::isfinite(exposed) && exposed > 0)
    facts.push_back(fmt::format("rank wait {:.1f} %", 100 * exposed));
  add("learning_rate", "learning rate");
  for (const wire::CheckpointView& checkpoint : data.checkpoints) {
    if (checkpoint.array != training.array || checkpoint.element != training.element) continue;
    facts.push_back(fmt::format("checkpoint: epoch {}, {} ago", checkpoint.epoch,
                                brief_duration(std::max(0.0, data.now_s - checkpoint.time_s))));
  }
  for (const auto* curve : training.curves) {
    const std::string& name = curve->name;
    const bool said = name == "samples_per_second" || name == "gflops" || name == "data_wait" ||
                      name == "exposed_communication" || name == "learning_rate";
    if (said || std::ranges::find(shown, curve) != shown.end()) continue;
    constexpr std::string_view kSlowNode = "slow_node/";
    if (name.starts_with(kSlowNode)) {
      facts.push_back(fmt::format("{} takes {:.1f} times as long as the others",
                                  name.substr(kSlowNode.size()), curve->points.back().value));
      continue;
    }
    facts.push_back(fmt::format("{} {:.4g}", name, curve->points.back().value));
  }
  return facts;
}

void put_facts(Grid& grid, const Panel& panel, const std::vector<std::string>& facts) {
  int row = panel.row;
  int column = panel.column;
  for (const std::string& fact : facts) {
    const int width = std::min(width_of(fact), panel.columns);
    if (column > panel.column && column + 2 + width > panel.column + panel.columns) {
      ++row;
      column = panel.column;
    }
    if (row >= panel.row + panel.rows) return;
    if (column > panel.column) column += 2;
    column = grid.put(row, column, cut_to_width(fact, panel.columns, grid.charset()));
  }
}

std::string without_loss(const std::string& name) {
  constexpr std::string_view kLoss = "_loss";
  return name.ends_with(kLoss) ? name.substr(0, name.size() - kLoss.size()) : name;
}

// Puts the names and last values of the plotted curves, in their colours; shortens names that do not fit.
void put_legend(Grid& grid, const Panel& panel, const std::vector<const wire::MetricCurve*>& curves,
                const std::vector<PlottedCurve>& plots) {
  const auto texts = [&](bool brief) {
    std::vector<std::string> list;
    for (std::size_t i = 0; i < curves.size(); ++i) {
      const std::string sign =
          grid.charset() == Charset::ascii ? std::string(1, plots[i].sign) + " " : std::string();
      const std::string& name = curves[i]->name;
      list.push_back(fmt::format("{}{} {:.4g}", sign, brief ? without_loss(name) : name,
                                 curves[i]->points.back().value));
    }
    return list;
  };
  auto list = texts(false);
  if (width_of(text::join(list, "  ")) > panel.columns) list = texts(true);
  int column = panel.column;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const int left = panel.column + panel.columns - column;
    column = grid.put(panel.row, column, cut_to_width(list[i], left, grid.charset()), plots[i].ink) + 2;
  }
}

// The number of rows for the list of all trainings below the panels: a head and at most a quarter of the
// rows. Few rows, or one training: none.
int ranking_rows(const Ranking& ranking, int rows) {
  constexpr int kLeastRows = 20;
  if (ranking.trainings.size() < 2 || rows < kLeastRows) return 0;
  return 1 + std::min(static_cast<int>(ranking.trainings.size()), rows / 4);
}

std::string ranked_line(const Ranking& ranking, std::size_t at, int name_columns, const TopData& data,
                        Charset charset) {
  const RankedTraining& training = ranking.trainings[at];
  const std::string name = cut_left(training.task, name_columns, charset);
  const std::string padding(static_cast<std::size_t>(std::max(0, name_columns - width_of(name))), ' ');
  const auto number = [](double value) {
    return std::isnan(value) ? std::string("-") : fmt::format("{:.4g}", value);
  };
  std::string line = fmt::format("{:>4}  {}{}  {:>10}  {:>10}  {:>5}",
                                 std::isnan(training.last) ? "-" : std::to_string(at + 1), name, padding,
                                 number(training.last), number(training.best), training.epoch);
  if (!ranking.quality.empty())
    line += fmt::format("  {:>{}}", number(training.quality), width_of(ranking.quality));
  const auto differs = data.training_parameters.find({training.array, training.element});
  if (differs != data.training_parameters.end() && !differs->second.empty()) line += "  " + differs->second;
  return line;
}

void put_ranking(Grid& grid, int row, int rows, const Ranking& ranking, const TopData& data) {
  constexpr int kMostName = 30;
  int name_columns = 8;
  for (const RankedTraining& training : ranking.trainings)
    name_columns = std::max(name_columns, width_of(training.task));
  name_columns = std::min({name_columns, kMostName, grid.width() / 3});
  std::string head = fmt::format("{:>4}  {:<{}}  {:>10}  {:>10}  {:>5}", "rank", "training", name_columns,
                                 "last", "best", "epoch");
  if (!ranking.quality.empty()) head += "  " + ranking.quality;
  head += "  by " + ranking.metric;
  grid.put(row, 1, cut_to_width(head, grid.width() - 1, grid.charset()), Ink::dim);
  for (int i = 1; i < rows && static_cast<std::size_t>(i) <= ranking.trainings.size(); ++i) {
    const std::string line =
        ranked_line(ranking, static_cast<std::size_t>(i) - 1, name_columns, data, grid.charset());
    grid.put(row + i, 1, cut_to_width(line, grid.width() - 1, grid.charset()));
  }
}

std::string title_of(const Training& training, const Ranking& ranking) {
  if (ranking.trainings.size() < 2) return training.task;
  for (std::size_t i = 0; i < ranking.trainings.size(); ++i) {
    const RankedTraining& ranked = ranking.trainings[i];
    if (ranked.array == training.array && ranked.element == training.element && !std::isnan(ranked.last))
      return fmt::format("{}  {} of {}", training.task, i + 1, ranking.trainings.size());
  }
  return training.task;
}

void put_training(Grid& grid, const Panel& panel, const Training& training, const Ranking& ranking,
                  const TopData& data, bool selected) {
  grid.put(panel.row, panel.column, cut_left(title_of(training, ranking), panel.columns, grid.charset()),
           Ink::bold);
  if (selected && panel.column > 0) grid.put(panel.row, panel.column - 1, ">", Ink::accent);
  put_epoch(grid, {panel.row + 1, panel.column, panel.columns, 1}, training, data);
  const auto curves = plotted_curves(training);
  const auto by_epoch = std::ranges::any_of(curves, [](const auto* c) { return c->points.back().epoch > 0; });
  std::vector<PlottedCurve> plots;
  for (const auto* curve : curves)
    plots.push_back(
        plotted(*curve, by_epoch, plots.empty() ? Ink::accent : Ink::second, plots.empty() ? '*' : 'o'));
  put_legend(grid, {panel.row + 2, panel.column, panel.columns, 1}, curves, plots);
  const int facts = panel.rows >= 16 ? 5 : panel.rows >= 12 ? 3 : 2;
  const int high = panel.rows - 3 - facts;
  put_plot(grid, panel.row + 3, panel.column, panel.columns, high, plots, true);
  put_facts(grid, {panel.row + 3 + std::max(high, 0), panel.column, panel.columns, facts},
            facts_of(training, data));
}

}  // namespace

void put_trainings(Grid& grid, int row, int rows, const TopData& data, const ViewState& state) {
  const auto list = trainings(data, state);
  if (list.empty()) {
    grid.put(row, 1, "no task has reported a metric yet");
    put_latest(grid, row + 2, rows - 2, data);
    return;
  }
  const Ranking ranking = ranking_of(data.status.metrics);
  const int ranked = ranking_rows(ranking, rows);
  if (ranked > 0) put_ranking(grid, row + rows - ranked, ranked, ranking, data);
  rows -= ranked > 0 ? ranked + 1 : 0;
  const auto fit = static_cast<std::size_t>(std::max(1, grid.width() / (kLeastPanel + 2)));
  const std::size_t panels = std::min({fit, list.size(), kMostPanels});
  const bool more = list.size() > panels;
  const std::size_t first =
      std::min(state.selected_here() > 0 ? state.selected_here() - 1 : 0, list.size() - panels);
  const int columns = (grid.width() - 1) / static_cast<int>(panels);
  for (std::size_t i = 0; i < panels; ++i) {
    const Panel panel{row, 1 + columns * static_cast<int>(i), columns - 2, rows - (more ? 1 : 0)};
    put_training(grid, panel, list[first + i], ranking, data,
                 list.size() > 1 && first + i == state.selected_here());
  }
  if (more)
    grid.put(row + rows - 1, 1,
             fmt::format("trainings {} to {} of {}", first + 1, first + panels, list.size()), Ink::dim);
}

}  // namespace wflow::cli::top
