// SPDX-License-Identifier: Apache-2.0
#include "cli/view/training_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

namespace wflow::cli {

namespace {

using engine::MetricCurve;
using engine::MetricPoint;

// The last of its points.
const MetricPoint* point_of(const MetricCurve& curve, std::uint64_t epoch) {
  const auto end = std::ranges::upper_bound(curve.points, epoch, {}, &MetricPoint::epoch);
  return end != curve.points.begin() && std::prev(end)->epoch == epoch ? &*std::prev(end) : nullptr;
}

int rank_of(std::string_view name) {
  return name == "train_loss" ? 0 : name == "validation_loss" ? 1 : 2;
}

std::string line_of(std::string text, const std::vector<const MetricCurve*>& curves, std::uint64_t epoch,
                    std::size_t columns) {
  constexpr std::size_t kForCount = 14;  // ", and 100 more"
  std::size_t left = 0;
  std::string_view separator = ": ";
  for (const MetricCurve* curve : curves) {
    const MetricPoint* point = point_of(*curve, epoch);
    if (point == nullptr) continue;
    const std::string part = fmt::format("{}{} {:.4g}", separator, curve->name, point->value);
    if (left > 0 || text.size() + part.size() + kForCount > columns) {
      ++left;
      continue;
    }
    text += part;
    separator = ", ";
  }
  if (left > 0) text += fmt::format("{}{}{} more", separator, separator == ", " ? "and " : "", left);
  return text;
}

// Greater than `after`.
std::set<std::uint64_t> epochs_of(const std::vector<const MetricCurve*>& curves, std::uint64_t after) {
  std::set<std::uint64_t> epochs;
  for (const MetricCurve* curve : curves) {
    for (auto point = curve->points.rbegin(); point != curve->points.rend() && point->epoch > after; ++point)
      epochs.insert(point->epoch);
  }
  return epochs;
}

}  // namespace

std::vector<std::string> TrainingLines::take(const engine::CampaignStatus& status, std::size_t columns, bool all) {
  std::map<std::pair<specs::ArrayId, specs::Element>, std::vector<const MetricCurve*>> curves;
  for (const MetricCurve& curve : status.metrics) curves[{curve.array, curve.element}].push_back(&curve);
  std::vector<std::string> lines;
  for (auto& [task, list] : curves) {
    std::ranges::stable_sort(list, {}, [](const MetricCurve* curve) { return rank_of(curve->name); });
    Training& training = trainings_[task];
    const auto epochs = epochs_of(list, training.given);
    if (first_call_ && !epochs.empty()) {
      training.given = *epochs.rbegin();
      continue;
    }
    for (const std::uint64_t epoch : epochs) {
      const std::string name = curves.size() > 1 ? list.front()->task + " " : "";
      std::string line = line_of(fmt::format("{}epoch {}", name, epoch), list, epoch, columns);
      const bool newest = epoch == *epochs.rbegin();
      if (newest && !all && line != training.newest_as_seen) {
        training.newest_as_seen = std::move(line);
        break;
      }
      training.given = epoch;
      lines.push_back(std::move(line));
    }
  }
  first_call_ = false;
  return lines;
}

}  // namespace wflow::cli
