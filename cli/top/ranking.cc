// SPDX-License-Identifier: Apache-2.0
#include "cli/top/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
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

bool has_word(std::string_view text, std::string_view word) {
  const auto ends = [&](std::size_t i) { return std::isalnum(static_cast<unsigned char>(text[i])) == 0; };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || ends(at - 1)) && (end == text.size() || ends(end))) return true;
  }
  return false;
}

}  // namespace

bool higher_is_better(std::string_view metric) {
  const std::string name = text::lower(metric);
  const auto has = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  if (has("loss") || has("error")) return false;
  // These must be separate words, unlike in "layer2" and "gap".
  for (const std::string_view word : {"r2", "map", "ap"})
    if (has_word(name, word)) return true;
  constexpr std::array<std::string_view, 8> kScores = {"accuracy",  "score", "auc",  "correlation",
                                                       "precision", "iou",   "dice", "recall"};
  return std::ranges::any_of(kScores, has);
}

Ranking ranking_of(const std::vector<MetricCurve>& curves, const std::string& metric) {
  Ranking ranking;
  ranking.metric = metric.empty() ? metric_to_rank_by(curves) : metric;
  ranking.higher_is_better = higher_is_better(ranking.metric);
  std::map<std::pair<specs::ArrayId, specs::Element>, RankedTraining> by_task;
  std::map<std::pair<specs::ArrayId, specs::Element>, std::vector<const MetricCurve*>> curves_of;
  for (const MetricCurve& curve : curves) {
    if (curve.points.empty()) continue;
    const auto [at, is_new] = by_task.try_emplace({curve.array, curve.element});
    RankedTraining& training = at->second;
    if (is_new) training = {curve.array, curve.element, curve.task, kNothing, kNothing, 0, 0, kNothing};
    curves_of[at->first].push_back(&curve);
    training.epoch = std::max(training.epoch, curve.points.back().epoch);
    if (curve.name == ranking.metric) take_metric(training, curve, ranking.higher_is_better);
  }
  for (auto& [task, training] : by_task) {
    for (const Quality& quality : qualities_of(curves_of[task])) {
      if (ranking.quality.empty()) ranking.quality = quality.name;
      if (quality.name == ranking.quality) training.quality = quality.last();
    }
    ranking.trainings.push_back(std::move(training));
  }
  // NaN is the worst value.
  const auto badness = [&](const RankedTraining& training) {
    if (std::isnan(training.last)) return std::numeric_limits<double>::infinity();
    return ranking.higher_is_better ? -training.last : training.last;
  };
  std::ranges::stable_sort(ranking.trainings, {}, badness);
  return ranking;
}

namespace {

// The less, the earlier; empty: it is no quality.
std::optional<int> rank_of_quality(const std::string& name) {
  const std::string lower = text::lower(name);
  const auto has = [&](std::string_view word) { return lower.find(word) != std::string::npos; };
  if (has("loss")) return std::nullopt;
  const int test = lower.starts_with("test") ? 0 : 1;
  const bool r2 = has("r2") && higher_is_better(lower);
  if (r2) return test;
  if (has("ratio")) return 2 + test;
  if (higher_is_better(lower) || has("error") || has("mae") || has("mse") || has("rms")) return 4 + test;
  return std::nullopt;
}

std::vector<MetricPoint> mean_of(const std::vector<const MetricCurve*>& curves) {
  std::map<std::uint64_t, std::pair<MetricPoint, int>> by_step;
  for (const MetricCurve* curve : curves) {
    for (const MetricPoint& point : curve->points) {
      auto& [sum, count] =
          by_step.try_emplace(point.step, MetricPoint{point.epoch, point.step, 0}, 0).first->second;
      sum.value += point.value;
      ++count;
    }
  }
  std::vector<MetricPoint> mean;
  for (const auto& [step, entry] : by_step)
    mean.push_back({entry.first.epoch, step, entry.first.value / entry.second});
  return mean;
}

}  // namespace

std::vector<Quality> qualities_of(const std::vector<const MetricCurve*>& curves) {
  std::map<std::pair<int, std::string>, std::vector<const MetricCurve*>> groups;
  for (const MetricCurve* curve : curves) {
    const std::string name = curve->name.substr(0, curve->name.find('/'));
    const auto rank = rank_of_quality(name);
    if (rank && !curve->points.empty()) groups[{*rank, name}].push_back(curve);
  }
  std::vector<Quality> qualities;
  for (const auto& [key, group] : groups) {
    Quality& quality = qualities.emplace_back();
    quality.name = key.second;
    quality.mean = mean_of(group);
    for (const MetricCurve* curve : group) {
      const std::size_t slash = curve->name.find('/');
      const std::string target = slash == std::string::npos ? "" : curve->name.substr(slash + 1);
      quality.targets.emplace_back(target, curve->points.back().value);
    }
  }
  return qualities;
}

std::string targets_text(const Quality& quality) {
  std::vector<std::string> parts;
  for (const auto& [target, value] : quality.targets) {
    if (!target.empty()) parts.push_back(fmt::format("{} {:.3g}", target, value));
  }
  return text::join(parts, ", ");
}

std::string text_of(const Quality& quality) {
  const std::string targets = targets_text(quality);
  return fmt::format("{} {:.3g}{}", quality.name, quality.last(),
                     targets.empty() ? "" : " (" + targets + ")");
}

}  // namespace wflow::cli::top
