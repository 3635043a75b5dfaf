// SPDX-License-Identifier: Apache-2.0
#include "cli/top/data.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/text.h"

namespace wflow::cli::top {

namespace {

using engine::wire::MetricCurve;
using engine::wire::MetricPoint;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

std::string metric_to_rank_by(const std::vector<MetricCurve>& curves) {
  constexpr std::array<std::string_view, 5> kFirst = {"validation_loss", "val_loss", "test_loss",
                                                      "train_loss", "loss"};
  for (const std::string_view name : kFirst) {
    if (std::ranges::find(curves, name, [](const auto& curve) { return std::string_view(curve.name); }) !=
        curves.end())
      return std::string(name);
  }
  return curves.empty() ? std::string() : curves.front().name;
}

void take_metric(RankedTraining& training, const MetricCurve& curve, bool higher) {
  training.last = curve.points.back().value;
  for (const MetricPoint& point : curve.points) {
    if (!std::isfinite(point.value)) continue;
    const bool better = higher ? point.value > training.best : point.value < training.best;
    if (!std::isnan(training.best) && !better) continue;
    training.best = point.value;
    training.best_epoch = point.epoch;
  }
}

}  // namespace

bool higher_is_better(std::string_view metric) {
  const std::string name = text::lower(metric);
  const auto has = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  if (has("loss") || has("error")) return false;
  // "r2" must be a separate word, unlike in "layer2".
  for (std::size_t at = name.find("r2"); at != std::string::npos; at = name.find("r2", at + 1)) {
    const auto ends = [&](std::size_t i) { return std::isalnum(static_cast<unsigned char>(name[i])) == 0; };
    if ((at == 0 || ends(at - 1)) && (at + 2 == name.size() || ends(at + 2))) return true;
  }
  constexpr std::array<std::string_view, 5> kScores = {"accuracy", "score", "auc", "correlation",
                                                       "precision"};
  return std::ranges::any_of(kScores, has);
}

Ranking ranking_of(const std::vector<MetricCurve>& curves, const std::string& metric) {
  Ranking ranking;
  ranking.metric = metric.empty() ? metric_to_rank_by(curves) : metric;
  ranking.higher_is_better = higher_is_better(ranking.metric);
  std::map<std::pair<specs::ArrayId, specs::Element>, RankedTraining> by_task;
  for (const MetricCurve& curve : curves) {
    if (curve.points.empty()) continue;
    const auto [at, is_new] = by_task.try_emplace({curve.array, curve.element});
    RankedTraining& training = at->second;
    if (is_new) training = {curve.array, curve.element, curve.task, kNothing, kNothing, 0, 0};
    training.epoch = std::max(training.epoch, curve.points.back().epoch);
    if (curve.name == ranking.metric) take_metric(training, curve, ranking.higher_is_better);
  }
  for (auto& [task, training] : by_task) ranking.trainings.push_back(std::move(training));
  // NaN is the worst value.
  const auto badness = [&](const RankedTraining& training) {
    if (std::isnan(training.last)) return std::numeric_limits<double>::infinity();
    return ranking.higher_is_better ? -training.last : training.last;
  };
  std::ranges::stable_sort(ranking.trainings, {}, badness);
  return ranking;
}

}  // namespace wflow::cli::top
