// SPDX-License-Identifier: Apache-2.0
#include "ode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace implosion {
namespace {

constexpr int kStages = 7;
// Row s: the weights of the slopes before stage s. The last row is the solution of order 5.
constexpr double kWeights[kStages][kStages - 1] = {
    {},
    {1.0 / 5},
    {3.0 / 40, 9.0 / 40},
    {44.0 / 45, -56.0 / 15, 32.0 / 9},
    {19372.0 / 6561, -25360.0 / 2187, 64448.0 / 6561, -212.0 / 729},
    {9017.0 / 3168, -355.0 / 33, 46732.0 / 5247, 49.0 / 176, -5103.0 / 18656},
    {35.0 / 384, 0, 500.0 / 1113, 125.0 / 192, -2187.0 / 6784, 11.0 / 84},
};
constexpr double kTimes[kStages] = {0, 1.0 / 5, 3.0 / 10, 4.0 / 5, 8.0 / 9, 1, 1};
// The solution of order 5 less that of order 4.
constexpr double kError[kStages] = {71.0 / 57600,      0,          -71.0 / 16695, 71.0 / 1920,
                                    -17253.0 / 339200, 22.0 / 525, -1.0 / 40};

}  // namespace

void Trajectory::append(double time, const State& state, const State& slope) {
  times_.push_back(time);
  states_.push_back(state);
  slopes_.push_back(slope);
}

State Trajectory::at(double time) const {
  const auto after = std::upper_bound(times_.begin() + 1, times_.end() - 1, time);
  const auto k = static_cast<std::size_t>(after - times_.begin());
  const double h = times_[k] - times_[k - 1];
  const double u = (time - times_[k - 1]) / h;
  const double rise = u * u * (3 - 2 * u), first = h * u * (1 - u) * (1 - u), last = h * u * u * (u - 1);
  State state(states_[k].size());
  for (std::size_t i = 0; i < state.size(); ++i)
    state[i] = (1 - rise) * states_[k - 1][i] + rise * states_[k][i] + first * slopes_[k - 1][i] +
               last * slopes_[k][i];
  return state;
}

Trajectory integrate(const Slope& slope, State start, double duration, const Accuracy& accuracy,
                     const std::function<bool(const Trajectory&)>& finished) {
  const std::size_t n = start.size();
  std::array<State, kStages> slopes;
  slopes.fill(State(n));
  State state = std::move(start), next(n);
  Trajectory trajectory;
  double time = 0, step = accuracy.first_step;
  slope(time, state, slopes[0]);
  trajectory.append(time, state, slopes[0]);
  for (std::size_t tries = 0; time < duration && !finished(trajectory); ++tries) {
    if (tries == accuracy.most_steps) throw std::runtime_error("the motion needs too many steps");
    for (int s = 1; s < kStages; ++s) {
      next = state;
      for (int k = 0; k < s; ++k) {
        const double weight = step * kWeights[s][k];
        for (std::size_t i = 0; i < n; ++i) next[i] += weight * slopes[k][i];
      }
      slope(time + step * kTimes[s], next, slopes[s]);
    }
    double error = 0;
    for (std::size_t i = 0; i < n; ++i) {
      double difference = 0;
      for (int s = 0; s < kStages; ++s) difference += kError[s] * slopes[s][i];
      const double allowed =
          accuracy.absolute[i] + accuracy.relative * std::max(std::abs(state[i]), std::abs(next[i]));
      const double part = std::abs(step * difference) / allowed;
      if (!(part <= error)) error = part;  // NaN too
    }
    if (error <= 1) {
      time += step;
      state = next;
      std::swap(slopes[0], slopes[kStages - 1]);
      trajectory.append(time, state, slopes[0]);
    }
    // NaN (a state that the slope has no value for) shortens the step.
    step *= error >= 0 ? std::clamp(0.9 * std::pow(error, -0.2), 0.2, 5.0) : 0.2;
    step = std::min(step, duration - time);
  }
  return trajectory;
}

}  // namespace implosion
