// SPDX-License-Identifier: Apache-2.0
// The choice of the next points: candidates, refinement, batches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "propose/gaussian_process.h"

namespace wflow::propose {

// The rules by which a point's worth follows from a model's prediction. All for a minimum.

// E max(best - value, 0) for a normal distribution: Mockus 1975; Jones, Schonlau and Welch 1998, equation 15.
double expected_improvement(const Prediction& prediction, double best);

// The improvement on `best` that the bound mean - kappa deviation promises (Srinivas, Krause, Kakade and
// Seeger 2010, "Gaussian process optimization in the bandit setting").
double bound_improvement(const Prediction& prediction, double best, double kappa);

struct Judge {
  Rule rule = Rule::expected_improvement;
  double best = 0;  // the least value known
  double kappa = 2;

  // The worth of a point by the rule; by `variance`, the deviation (MacKay 1992, Neural Computation 4:590).
  double worth(const Prediction& prediction) const;
  // A monotone function of the worth that an optimiser can follow, and its gradient: the logarithm of the
  // expected improvement, which is flat nearly everywhere (Ament et al. 2023, "Unexpected improvements to
  // expected improvement").
  double merit(const Prediction& prediction, const Gradients& of_prediction,
               std::span<double> gradient) const;
};

// Inputs in units of their ranges: points of the unit cube.
class Space {
 public:
  explicit Space(std::vector<Bound> bounds) : bounds_(std::move(bounds)) {}
  const std::vector<Bound>& bounds() const { return bounds_; }
  std::size_t dimensions() const { return bounds_.size(); }
  // Outside of the bounds, too.
  Point to_unit(std::span<const double> values) const;
  std::vector<double> from_unit(std::span<const double> point) const;
  // The nearest point that is possible: in the cube, whole numbers where inputs have them.
  Point snapped(std::span<const double> point) const;

 private:
  std::vector<Bound> bounds_;
};

// The first points of a Sobol sequence that the seed shifts; beyond its 40 dimensions, random ones.
std::vector<Point> candidates(const Space& space, std::size_t count, std::uint64_t seed);

struct Chosen {
  std::vector<Point> points;  // fewer than wanted if no other point is worth anything
  std::vector<double> worth;  // of each when it was chosen
};

struct Wanted {
  std::size_t count = 1;
  std::size_t candidates = 2000;
  std::uint64_t seed = 1;
};

// One point after the other: the candidates of the largest worth are refined by the gradient, and the best of
// them becomes a believed value of the model. `taken`: points that are not chosen again, among them those of
// simulations that failed.
Chosen choose(GaussianProcess& model, const Judge& judge, const Space& space, const std::vector<Point>& taken,
              const Wanted& wanted);

// The points that are farthest from all others, one after the other (Johnson, Moore and Ylvisaker 1990,
// "Minimax and maximin distance designs"); worth: the distance in the unit cube.
Chosen choose_far(const Space& space, const std::vector<Point>& taken, const Wanted& wanted);

// From a list with a prediction for each point. The deviation near a chosen point falls by the correlation
// with it over a length of the mean distance of all `taken`, since a trained model can't believe a value.
Chosen choose_listed(const std::vector<Point>& points, std::vector<Prediction> predictions,
                     const Judge& judge, const std::vector<Point>& taken, const Wanted& wanted);

}  // namespace wflow::propose
