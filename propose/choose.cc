// SPDX-License-Identifier: Apache-2.0
#include "propose/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "propose/dense.h"

namespace wflow::propose {

namespace {

constexpr std::size_t kRefined = 8;    // candidates, for each point
constexpr std::size_t kNearBest = 50;  // candidates around the best point, for each width
constexpr double kWidths[] = {0.1, 0.02, 0.004};
constexpr int kRefineSteps = 40;
constexpr double kSame = 1e-6;  // points closer than this in the unit cube are one
constexpr int kDistanceSteps = 60;

double square_distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  return sum;
}

bool is_taken(std::span<const double> point, const std::vector<Point>& taken) {
  return std::ranges::any_of(
      taken, [&](const Point& other) { return square_distance(point, other) < kSame * kSame; });
}

// The indices of the largest values, the largest first; equal ones in their order.
std::vector<std::size_t> largest(const std::vector<double>& values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  count = std::min(count, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](std::size_t a, std::size_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  order.resize(count);
  return order;
}

Point shaken(std::span<const double> point, double width, std::uint64_t key) {
  Point result(point.begin(), point.end());
  for (std::size_t k = 0; k < result.size(); ++k)
    result[k] = std::clamp(result[k] + width * normal_real(key, k), 0.0, 1.0);
  return result;
}

// Adds points around the one with the least mean.
void add_near_best(std::vector<Point>& points, const GaussianProcess& model, const std::vector<Point>& taken,
                   std::uint64_t seed) {
  if (taken.empty()) return;
  const auto best =
      std::ranges::min_element(taken, {}, [&](const Point& point) { return model.at(point).mean; });
  std::uint64_t key = seed;
  for (const double width : kWidths) {
    for (std::size_t i = 0; i < kNearBest; ++i) points.push_back(shaken(*best, width, hash64(seed, ++key)));
  }
}

// One point of choose().
class Search {
 public:
  Search(const GaussianProcess& model, const Judge& judge, const Space& space)
      : model_(model), judge_(judge), space_(space) {}

  std::optional<Point> best(const std::vector<Point>& candidates, const std::vector<Point>& taken) {
    std::vector<double> worth;
    worth.reserve(candidates.size());
    for (const Point& point : candidates) worth.push_back(worth_of(point));
    std::optional<Point> found;
    double most = -std::numeric_limits<double>::infinity();
    const auto consider = [&](const Point& point) {
      const Point possible = space_.snapped(point);
      const double value = worth_of(possible);
      if (value <= most || is_taken(possible, taken)) return;
      most = value;
      found = possible;
    };
    for (const std::size_t i : largest(worth, kRefined)) {
      consider(candidates[i]);
      consider(refined(candidates[i]));
    }
    if (!found) {  // the best ones are known points
      for (const Point& point : candidates) consider(point);
    }
    return found;
  }

  double worth_of(std::span<const double> point) const { return judge_.worth(model_.at(point)); }

 private:
  Point refined(const Point& start) const {
    const Box cube{std::vector<double>(start.size(), 0), std::vector<double>(start.size(), 1)};
    Gradients gradients;
    const Function loss = [&](std::span<const double> x, std::span<double> gradient) {
      const Prediction prediction = model_.at(x, &gradients);
      const double merit = judge_.merit(prediction, gradients, gradient);
      for (double& slope : gradient) slope = -slope;
      return -merit;
    };
    return minimize(loss, start, cube, kRefineSteps).point;
  }

  const GaussianProcess& model_;
  const Judge& judge_;
  const Space& space_;
};

double nearest(std::span<const double> point, const std::vector<Point>& taken) {
  double least = std::numeric_limits<double>::infinity();
  for (const Point& other : taken) least = std::min(least, square_distance(point, other));
  return std::sqrt(least);
}

}  // namespace

Point Space::to_unit(std::span<const double> values) const {
  Point point;
  for (std::size_t k = 0; k < bounds_.size(); ++k) {
    const Bound& bound = bounds_[k];
    point.push_back(bound.log ? std::log(values[k] / bound.low) / std::log(bound.high / bound.low)
                              : (values[k] - bound.low) / (bound.high - bound.low));
  }
  return point;
}

std::vector<double> Space::from_unit(std::span<const double> point) const {
  std::vector<double> values;
  for (std::size_t k = 0; k < bounds_.size(); ++k) {
    const Bound& bound = bounds_[k];
    double value = bound.log ? bound.low * std::pow(bound.high / bound.low, point[k])
                             : bound.low + point[k] * (bound.high - bound.low);
    if (bound.integer) value = std::round(value);
    values.push_back(std::clamp(value, bound.low, bound.high));
  }
  return values;
}

Point Space::snapped(std::span<const double> point) const {
  Point inside(point.begin(), point.end());
  for (double& x : inside) x = std::clamp(x, 0.0, 1.0);
  const bool whole = std::ranges::any_of(bounds_, &Bound::integer);
  return whole ? to_unit(from_unit(inside)) : inside;
}

std::vector<Point> candidates(const Space& space, std::size_t count, std::uint64_t seed) {
  const std::size_t dimensions = space.dimensions();
  std::optional<Sobol> sobol;
  if (dimensions <= Sobol::kMaxDimensions) sobol.emplace(dimensions);
  constexpr int kDropped = 64 - Sobol::kBits;
  std::vector<Point> points(count, Point(dimensions));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < dimensions; ++k) {
      const std::uint64_t shift = hash64(seed, k) >> kDropped;
      points[i][k] = sobol ? std::ldexp(static_cast<double>(sobol->bits(i, k) ^ shift), -Sobol::kBits)
                           : unit_real(hash64(hash64(seed, k), i));
    }
    points[i] = space.snapped(points[i]);
  }
  return points;
}

Chosen choose(GaussianProcess& model, const Judge& judge, const Space& space, const std::vector<Point>& taken,
              const Wanted& wanted) {
  Chosen chosen;
  std::vector<Point> all = taken;
  std::vector<Point> points = candidates(space, wanted.candidates, wanted.seed);
  if (judge.rule != Rule::variance) add_near_best(points, model, taken, wanted.seed);
  Search search(model, judge, space);
  while (chosen.points.size() < wanted.count) {
    std::optional<Point> point = search.best(points, all);
    if (!point) break;
    chosen.worth.push_back(search.worth_of(*point));
    all.push_back(*point);
    model.believe(*point);
    chosen.points.push_back(std::move(*point));
  }
  return chosen;
}

Chosen choose_far(const Space& space, const std::vector<Point>& taken, const Wanted& wanted) {
  Chosen chosen;
  std::vector<Point> all = taken;
  const std::vector<Point> points = candidates(space, wanted.candidates, wanted.seed);
  std::vector<double> distance;
  for (const Point& point : points) distance.push_back(nearest(point, all));
  while (chosen.points.size() < wanted.count) {
    const auto farthest = std::ranges::max_element(distance);
    if (*farthest < kSame) break;
    Point best = points[static_cast<std::size_t>(farthest - distance.begin())];
    double most = nearest(best, all);
    double width = std::isfinite(most) ? most / 2 : 0;
    const std::uint64_t key = hash64(wanted.seed, all.size());
    for (int i = 0; i < kDistanceSteps * static_cast<int>(space.dimensions()); ++i, width *= 0.98) {
      const Point next = space.snapped(shaken(best, width, hash64(key, static_cast<std::uint64_t>(i))));
      const double reached = nearest(next, all);
      if (reached <= most) continue;
      most = reached;
      best = next;
    }
    chosen.worth.push_back(most);
    for (std::size_t i = 0; i < points.size(); ++i)
      distance[i] = std::min(distance[i], std::sqrt(square_distance(points[i], best)));
    all.push_back(best);
    chosen.points.push_back(std::move(best));
  }
  return chosen;
}

Chosen choose_listed(const std::vector<Point>& points, std::vector<Prediction> predictions,
                     const Judge& judge, const std::vector<Point>& taken, const Wanted& wanted) {
  Chosen chosen;
  const double dimensions = points.empty() ? 1 : static_cast<double>(points.front().size());
  const double known = static_cast<double>(std::max<std::size_t>(taken.size(), 1));
  const double length = std::pow(known, -1 / dimensions);
  std::vector<bool> gone;
  for (const Point& point : points) gone.push_back(is_taken(point, taken));
  while (chosen.points.size() < wanted.count) {
    std::optional<std::size_t> best;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double worth = gone[i] ? -std::numeric_limits<double>::infinity() : judge.worth(predictions[i]);
      if (worth <= most) continue;
      most = worth;
      best = i;
    }
    if (!best) break;
    chosen.points.push_back(points[*best]);
    chosen.worth.push_back(most);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double square = square_distance(points[i], points[*best]);
      predictions[i].deviation *= std::sqrt(-std::expm1(-square / (length * length)));
      gone[i] = gone[i] || square < kSame * kSame;
    }
  }
  return chosen;
}

}  // namespace wflow::propose
