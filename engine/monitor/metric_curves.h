// SPDX-License-Identifier: Apache-2.0
// The metrics that tasks report, a curve for each task and name. Memory is bounded for any input: long curves
// are thinned evenly, and of very many curves the most recently reported ones are kept. A line costs O(log
// points) where steps grow, as in training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/wire/answers.h"
#include "engine/wire/task_event.h"

namespace wflow::engine {

// Each curve evenly thinned, so that all of them have at most about `points` points (two each at least);
// first and last points stay. 0: no curves.
void thin_curves(std::vector<wire::MetricCurve>& curves, std::size_t points);

class MetricCurves {
 public:
  static constexpr std::size_t kCurves = 256;
  static constexpr std::size_t kPoints = 2048;  // per curve

  // A training that goes on from a checkpoint reports some steps again: the last report counts.
  void add(specs::ArrayId array, specs::Element element, const wire::Metric& metric);
  void add(const std::vector<wire::MetricCurve>& curves);

  using TaskName = std::function<std::string(specs::ArrayId, specs::Element)>;
  // In order of task and name, with at most about `points` points in all.
  std::vector<wire::MetricCurve> curves(const TaskName& name, std::size_t points) const;

 private:
  struct Curve {
    std::vector<wire::MetricPoint> points;  // in order of step, the newest is exact
    std::uint64_t gap = 0;                  // between neighbours, but for the last one
    std::uint64_t used = 0;                 // when it was last reported
  };
  using Key = std::tuple<specs::ArrayId, specs::Element, std::string>;

  void forget_oldest();
  static void put(Curve& curve, const wire::MetricPoint& point);
  static void thin(Curve& curve);

  std::map<Key, Curve> curves_;
  std::map<std::uint64_t, Key> by_use_;
  std::uint64_t uses_ = 0;
};

}  // namespace wflow::engine
