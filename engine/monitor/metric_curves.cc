// SPDX-License-Identifier: Apache-2.0
#include "engine/monitor/metric_curves.h"

#include <algorithm>
#include <utility>

namespace wflow::engine {

namespace {

using Points = std::vector<wire::MetricPoint>;

// `most` of them at most, evenly, among them the first and the last.
Points thinned(const Points& points, std::size_t most) {
  if (points.size() <= most) return points;
  Points kept;
  for (std::size_t i = 0; i < most; ++i) kept.push_back(points[i * (points.size() - 1) / (most - 1)]);
  return kept;
}

}  // namespace

void thin_curves(std::vector<wire::MetricCurve>& curves, std::size_t points) {
  if (points == 0) curves.clear();
  if (curves.empty()) return;
  const std::size_t each = std::max<std::size_t>(points / curves.size(), 2);
  for (wire::MetricCurve& curve : curves) {
    if (curve.points.size() > each) curve.points = thinned(curve.points, each);
  }
}

void MetricCurves::add(specs::ArrayId array, specs::Element element, const wire::Metric& metric) {
  const auto [at, is_new] = curves_.try_emplace(Key{array, element, metric.name});
  Curve& curve = at->second;
  if (!is_new) by_use_.erase(curve.used);
  curve.used = ++uses_;
  by_use_.emplace_hint(by_use_.end(), curve.used, at->first);
  put(curve, {metric.epoch, metric.step, metric.value});
  if (curves_.size() > kCurves) forget_oldest();
}

void MetricCurves::add(const std::vector<wire::MetricCurve>& curves) {
  for (const wire::MetricCurve& curve : curves) {
    for (const wire::MetricPoint& point : curve.points)
      add(curve.array, curve.element, {curve.name, point.epoch, point.step, point.value});
  }
}

void MetricCurves::forget_oldest() {
  curves_.erase(by_use_.begin()->second);
  by_use_.erase(by_use_.begin());
}

void MetricCurves::put(Curve& curve, const wire::MetricPoint& point) {
  Points& points = curve.points;
  const auto before = [](const wire::MetricPoint& p, std::uint64_t step) { return p.step < step; };
  const auto at = std::lower_bound(points.begin(), points.end(), point.step, before);
  if (at != points.end() && at->step == point.step) {
    *at = point;
    return;
  }
  if (at == points.end()) {
    // The one that was last stays only where it is far enough from its neighbour.
    const std::size_t count = points.size();
    const bool crowded = count >= 2 && points[count - 1].step - points[count - 2].step < curve.gap;
    crowded ? void(points.back() = point) : points.push_back(point);
  } else {
    const bool crowded = at->step - point.step < curve.gap ||
                         (at != points.begin() && point.step - std::prev(at)->step < curve.gap);
    if (crowded) return;
    points.insert(at, point);
  }
  if (points.size() > kPoints) thin(curve);
}

void MetricCurves::thin(Curve& curve) {
  const Points points = std::exchange(curve.points, {});
  const std::uint64_t span = points.back().step - points.front().step;
  curve.gap = std::max<std::uint64_t>(2 * curve.gap, span / (kPoints / 2) + 1);
  for (const wire::MetricPoint& point : points) {
    const bool keep = curve.points.empty() || point.step - curve.points.back().step >= curve.gap;
    if (keep || &point == &points.back()) curve.points.push_back(point);
  }
}

std::vector<wire::MetricCurve> MetricCurves::curves(const TaskName& name, std::size_t points) const {
  std::vector<wire::MetricCurve> list;
  if (curves_.empty()) return list;
  const std::size_t each = std::max<std::size_t>(points / curves_.size(), 2);
  list.reserve(curves_.size());
  for (const auto& [key, curve] : curves_) {
    const auto& [array, element, metric] = key;
    list.push_back({array, element, name(array, element), metric, thinned(curve.points, each)});
  }
  return list;
}

}  // namespace wflow::engine
