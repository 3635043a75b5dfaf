// SPDX-License-Identifier: Apache-2.0
// Training curves, the ranking of several trainings, and the predictions of the network.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/text.h"
#include "cli/report/report.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kCurves = 8;  // curves in one plot
constexpr std::size_t kFigures = 16;
constexpr std::size_t kRanked = 50;
constexpr std::size_t kPredictionPlots = 12;
constexpr std::size_t kClasses = 16;
constexpr std::size_t kLineages = 16;  // trainers of a tournament in one plot

using engine::MetricCurve;

double last_finite(const MetricCurve& curve) {
  for (auto point = curve.points.rbegin(); point != curve.points.rend(); ++point)
    if (std::isfinite(point->value)) return point->value;
  return NAN;
}

// "train_loss" and "validation_loss" share one plot, "loss".
std::string plot_name(const std::string& metric) {
  for (const std::string_view prefix : {"train_", "validation_", "test_"})
    if (metric.starts_with(prefix)) return metric.substr(prefix.size());
  return metric;
}

// True if a step that runs once a sample reported a single value: the section on samples shows these.
bool is_of_sample(const ReportData& data, const MetricCurve& curve) {
  const specs::PlannedStep& step = data.plan.steps()[data.plan.step_of(curve.array)];
  return step.sample_dependent && curve.points.size() < 2;
}

plot::Series series_of(const MetricCurve& curve, bool several_tasks) {
  plot::Series series{.name = several_tasks ? fmt::format("{} {}", curve.task, curve.name) : curve.name};
  // Epochs if the task reports them, else its steps.
  const bool epochs = curve.points.back().epoch > curve.points.front().epoch || curve.points.size() == 1;
  for (const engine::MetricPoint& point : curve.points) {
    series.x.push_back(static_cast<double>(epochs ? point.epoch : point.step));
    series.y.push_back(point.value);
  }
  series.marks = curve.points.size() <= 60;
  return series;
}

bool spans_decades(const plot::Figure& figure) {
  double least = HUGE_VAL;
  double most = 0;
  for (const plot::Series& series : figure.series) {
    for (const double value : series.y) {
      if (!std::isfinite(value)) continue;
      if (value <= 0) return false;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  constexpr double kWide = 20;
  return most > kWide * least;
}

void add_curves(const std::string& name, std::vector<const MetricCurve*> curves, bool several_tasks,
                Page& page) {
  plot::Figure figure{.id = plot::figure_id("curve-" + name), .kind = plot::Kind::lines, .title = name};
  if (curves.size() > kCurves) {
    const bool loss = name.find("loss") != std::string::npos;
    std::ranges::stable_sort(curves, [&](const auto* a, const auto* b) {
      const double left = last_finite(*a);
      const double right = last_finite(*b);
      if (!std::isfinite(right)) return std::isfinite(left);
      return loss && left < right;
    });
    figure.caption = fmt::format("{} {} of {}.", loss ? "The best" : "The first", kCurves,
                                 counted(curves.size(), "curve"));
    curves.resize(kCurves);
  }
  figure.x = {.name = curves.front()->points.back().epoch > 0 ? "epoch" : "step"};
  figure.y = {.name = name};
  for (const MetricCurve* curve : curves) figure.series.push_back(series_of(*curve, several_tasks));
  if (spans_decades(figure)) figure.y.scale = plot::Scale::logarithmic;
  page.figure(std::move(figure));
}

// Adds a table of the metrics that were reported once.
void add_values(const std::vector<const MetricCurve*>& values, Page& page) {
  if (values.empty()) return;
  PageTable table{{"task", "metric", "value"}, {false, false, true}, {}};
  for (std::size_t i = 0; i < std::min(values.size(), kRanked); ++i)
    table.rows.push_back(
        {values[i]->task, values[i]->name, fmt::format("{:.5g}", values[i]->points.back().value)});
  page.heading("Values that tasks reported once");
  page.table(table);
  if (values.size() > kRanked) page.paragraph(fmt::format("The first {} of {}.", kRanked, values.size()));
}

// Adds the trainings of a sweep, the best first.
void add_ranking(const ReportData& data, Page& page) {
  std::vector<const MetricCurve*> losses;
  for (const MetricCurve& curve : data.status.metrics)
    if (curve.name == "validation_loss" && !curve.points.empty()) losses.push_back(&curve);
  if (losses.size() < 2) return;
  std::ranges::stable_sort(losses,
                           [](const auto* a, const auto* b) { return last_finite(*a) < last_finite(*b); });
  PageTable table{
      {"training", "last validation loss", "epoch", "parameters"}, {false, true, true, false}, {}};
  for (std::size_t i = 0; i < std::min(losses.size(), kRanked); ++i) {
    std::string parameters;
    for (const auto& [name, value] : data.plan.parameters(losses[i]->array))
      parameters += fmt::format("{}{} = {}", parameters.empty() ? "" : ", ", name, value);
    table.rows.push_back({losses[i]->task, fmt::format("{:.5g}", last_finite(*losses[i])),
                          std::to_string(losses[i]->points.back().epoch), parameters});
  }
  page.heading("Trainings, the lowest loss first");
  page.table(table);
}

void add_predictions(const Predictions& predictions, std::size_t& drawn, Page& page) {
  for (std::size_t k = 0; k < predictions.targets.size() && drawn < kPredictionPlots; ++k, ++drawn) {
    const std::string& target = predictions.targets[k];
    plot::Figure figure{.id = plot::figure_id(fmt::format("predicted-{}-{}", predictions.task, target)),
                        .kind = plot::Kind::scatter,
                        .title = fmt::format("{}: {}, predicted against true", predictions.task, target)};
    const auto& truth = predictions.truths[k];
    const auto& predicted = predictions.predicted[k];
    double sum = 0;
    double mean = 0;
    double low = HUGE_VAL;
    double high = -HUGE_VAL;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      sum += (predicted[i] - truth[i]) * (predicted[i] - truth[i]);
      mean += truth[i];
      low = std::min({low, truth[i], predicted[i]});
      high = std::max({high, truth[i], predicted[i]});
    }
    const auto count = static_cast<double>(std::max<std::size_t>(truth.size(), 1));
    mean /= count;
    double variance = 0;
    for (const double value : truth) variance += (value - mean) * (value - mean);
    figure.caption = fmt::format("{}; root mean square error {:.3g}{}. The line is a perfect prediction.",
                                 counted(truth.size(), "test sample"), std::sqrt(sum / count),
                                 variance > 0 ? fmt::format(", R² {:.3f}", 1 - sum / variance) : "");
    figure.x = {.name = "true " + target};
    figure.y = {.name = "predicted " + target};
    if (low < high) {
      const double room = (high - low) * 0.04;
      figure.x.low = figure.y.low = low - room;
      figure.x.high = figure.y.high = high + room;
    }
    figure.diagonal = true;
    figure.series = {{.name = "test samples", .x = truth, .y = predicted}};
    page.figure(std::move(figure));
  }
}

// Metrics of the classes of a target, and the row of the confusion matrix of each.
void add_classes(const TrainingResult& training, const std::string& target, const nlohmann::json& errors,
                 Page& page) {
  const nlohmann::json& classes = errors.at("classes");
  if (classes.size() > kClasses) return;
  const nlohmann::json confusion = errors.value("confusion", nlohmann::json::array());
  PageTable table{{"class", "cells", "IoU", "Dice", "precision", "recall", "ROC AUC"}, {}, {}};
  for (std::size_t k = 0; k < confusion.size(); ++k)
    table.headings.push_back(fmt::format("predicted as {}", k));
  table.numbers.assign(table.headings.size(), true);
  const auto number = [](const nlohmann::json& value) {
    return value.is_number() ? fmt::format("{:.4g}", value.get<double>()) : std::string("-");
  };
  for (std::size_t k = 0; k < classes.size(); ++k) {
    const nlohmann::json& one = classes[k];
    std::vector<std::string> row = {std::to_string(k), fmt::format("{:.0f}", one.at("truth").get<double>())};
    for (const char* name : {"iou", "dice", "precision", "recall", "auc"})
      row.push_back(number(one.at(name)));
    for (std::size_t j = 0; j < confusion.size(); ++j)
      row.push_back(std::to_string(confusion.at(k).at(j).get<std::uint64_t>()));
    table.rows.push_back(std::move(row));
  }
  page.heading(fmt::format("{}: classes of {} in the test samples", training.task, target));
  page.paragraph(fmt::format("Accuracy {}, mean IoU {}, mean Dice coefficient {}.",
                             number(errors.at("accuracy")), number(errors.at("mean_iou")),
                             number(errors.at("mean_dice"))));
  page.table(table);
}

// Metrics by name: those of a detection, of all targets in one table.
void add_metrics(const TrainingResult& training, Page& page) {
  PageTable table{{"target", "metric", "test samples"}, {false, false, true}, {}};
  for (const auto& [target, errors] : training.result.at("test").at("targets").items()) {
    const nlohmann::json metrics = errors.value("metrics", nlohmann::json::object());
    for (const auto& [name, value] : metrics.items())
      table.rows.push_back(
          {target, name, value.is_number() ? fmt::format("{:.4g}", value.get<double>()) : std::string("-")});
  }
  if (table.rows.empty()) return;
  page.heading(fmt::format("{}: metrics of the test samples", training.task));
  page.table(table);
}

void add_pictures(const TrainingResult& training, Page& page) {
  plot::Figure figure{.id = plot::figure_id("pictures-" + training.task),
                      .kind = plot::Kind::images,
                      .title = fmt::format("{}: test samples", training.task)};
  figure.caption = "Input, truth and prediction; of a volume the middle plane.";
  for (const nlohmann::json& sample : training.pictures.at("samples")) {
    for (const nlohmann::json& picture : sample.at("pictures")) {
      plot::Image image{.name = fmt::format("sample {}, {} {}", sample.at("id").get<std::int64_t>(),
                                            picture.at("role").get<std::string>(),
                                            picture.at("name").get<std::string>())};
      image.rows = picture.at("rows").get<std::uint32_t>();
      image.columns = picture.at("columns").get<std::uint32_t>();
      for (const nlohmann::json& value : picture.at("values"))
        image.values.push_back(value.is_number() ? value.get<float>() : NAN);
      figure.images.push_back(std::move(image));
    }
  }
  if (!figure.images.empty()) page.figure(std::move(figure));
}

// The trainers of a tournament that each model at the end has been with.
void add_ancestors(const TrainingResult& training, const nlohmann::json& tournament, Page& page) {
  const auto trainers = tournament.at("trainers").get<std::size_t>();
  const auto rounds = tournament.at("rounds").get<std::size_t>();
  const auto best = tournament.at("best").get<std::size_t>();
  if (rounds == 0 || trainers > kLineages) return;
  std::vector<std::vector<std::size_t>> from(rounds + 1, std::vector<std::size_t>(trainers + 1));
  for (std::vector<std::size_t>& round : from) std::iota(round.begin(), round.end(), std::size_t{0});
  for (const nlohmann::json& bout : tournament.at("bouts"))
    if (bout.at("took").get<bool>())
      from.at(bout.at("round").get<std::size_t>()).at(bout.at("trainer").get<std::size_t>()) =
          bout.at("partner").get<std::size_t>();
  plot::Figure figure{.id = plot::figure_id("ancestors-" + training.task),
                      .kind = plot::Kind::lines,
                      .title = fmt::format("{}: ancestors of the models", training.task)};
  figure.caption = fmt::format(
      "Each line ends at a trainer's model and goes back to the trainers that had it "
      "before each round. The best model is that of trainer {}.",
      best);
  figure.x = {.name = "round", .low = 0, .high = static_cast<double>(rounds)};
  figure.y = {.name = "trainer", .low = 0.5, .high = static_cast<double>(trainers) + 0.5};
  for (std::size_t trainer = 1; trainer <= trainers; ++trainer) {
    plot::Series series{.name = fmt::format("trainer {}{}", trainer, trainer == best ? ", the best" : "")};
    std::size_t at = trainer;
    for (std::size_t round = rounds + 1; round-- > 0;) {
      series.x.push_back(static_cast<double>(round));
      series.y.push_back(static_cast<double>(at));
      at = from[round].at(at);
    }
    series.marks = rounds <= 60;
    figure.series.push_back(std::move(series));
  }
  page.figure(std::move(figure));
}

// Adds the predictions of wflow-train before the first step, beside its measurements.
void add_prediction(const TrainingResult& training, Page& page) {
  const nlohmann::json prediction = training.result.value("prediction", nlohmann::json::object());
  PageTable table{{"", "predicted", "measured", "error"}, {false, true, true, true}, {}};
  const auto add = [&](const char* key, const char* what, const auto& text_of_number) {
    const nlohmann::json entry = prediction.value(key, nlohmann::json::object());
    if (!entry.value("predicted", nlohmann::json()).is_number()) return;
    const auto cell = [&](const char* name, const auto& text) {
      const nlohmann::json value = entry.value(name, nlohmann::json());
      return value.is_number() ? text(value.get<double>()) : std::string("-");
    };
    table.rows.push_back(
        {what, cell("predicted", text_of_number), cell("measured", text_of_number),
         cell("error_percent", [](double error) { return fmt::format("{:+.1f} %", error); })});
  };
  add("memory_bytes", "memory of a rank",
      [](double bytes) { return text::format_bytes(static_cast<std::uint64_t>(std::max(0.0, bytes))); });
  add("step_seconds", "a step", [](double seconds) { return fmt::format("{:.3g} s", seconds); });
  if (table.rows.empty()) return;
  page.heading(fmt::format("{}: predicted and measured", training.task));
  page.table(table);
}

// A file that another program has changed is left out.
void add_results(const TrainingResult& training, Page& page) {
  try {
    for (const auto& [target, errors] : training.result.at("test").at("targets").items())
      if (errors.contains("classes")) add_classes(training, target, errors, page);
    add_metrics(training, page);
    add_prediction(training, page);
    const nlohmann::json ranks = training.result.value("ranks_this_segment", nlohmann::json::object());
    if (ranks.contains("slow"))
      page.paragraph(fmt::format("{}: {}.", training.task, ranks.at("slow").get<std::string>()));
    if (training.result.contains("tournament") && training.result.at("tournament").contains("bouts"))
      add_ancestors(training, training.result.at("tournament"), page);
    if (!training.pictures.is_null()) add_pictures(training, page);
    if (!training.analysis.is_null()) write_analysis(training, page);
    if (!training.inference.is_null()) write_inference(training, page);
  } catch (const nlohmann::json::exception& error) {
    page.note(
        fmt::format("The results of {} are not as wflow-train writes them: {}", training.task, error.what()));
  }
}

}  // namespace

void write_training(const ReportData& data, Page& page) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const MetricCurve*>> plots;
  std::map<std::string, std::string> tasks;  // the task of each plot, "" for several
  for (const MetricCurve& curve : data.status.metrics) {
    if (curve.points.empty() || is_of_sample(data, curve)) continue;
    const std::string name = plot_name(curve.name);
    auto& list = plots[name];
    if (list.empty()) {
      order.push_back(name);
      tasks[name] = curve.task;
    } else if (tasks[name] != curve.task) {
      tasks[name] = "";
    }
    list.push_back(&curve);
  }
  if (order.empty() && data.predictions.empty() && data.results.empty()) return;
  page.section("training", "Training");
  add_ranking(data, page);
  // The loss comes first.
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return (a == "loss") > (b == "loss"); });
  std::size_t curves = 0;
  std::vector<const MetricCurve*> once;
  for (const std::string& name : order) {
    auto& list = plots[name];
    if (std::ranges::all_of(list, [](const auto* curve) { return curve->points.size() < 2; })) {
      once.insert(once.end(), list.begin(), list.end());
    } else if (curves++ < kFigures) {
      add_curves(name, list, tasks[name].empty(), page);
    }
  }
  std::size_t drawn = 0;
  for (const Predictions& predictions : data.predictions) add_predictions(predictions, drawn, page);
  for (const TrainingResult& training : data.results) add_results(training, page);
  add_values(once, page);
}

}  // namespace wflow::cli::report
