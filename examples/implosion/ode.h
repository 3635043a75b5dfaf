// SPDX-License-Identifier: Apache-2.0
// Ordinary differential equations: the pair of order 5 and 4 of J. R. Dormand and P. J. Prince, J. Comput.
// Appl. Math. 6, 19 (1980), with a step that follows the error.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace implosion {

using State = std::vector<double>;
using Slope = std::function<void(double time, std::span<const double> state, std::span<double> slope)>;

// A solution: states and slopes at the ends of the steps, and cubics between them.
class Trajectory {
 public:
  void append(double time, const State& state, const State& slope);

  std::size_t steps() const { return times_.size(); }
  double time(std::size_t step) const { return times_[step]; }
  double end() const { return times_.back(); }
  const State& state(std::size_t step) const { return states_[step]; }
  State at(double time) const;

 private:
  std::vector<double> times_;
  std::vector<State> states_;
  std::vector<State> slopes_;
};

struct Accuracy {
  double relative = 0;
  State absolute;  // the error of each value that is small enough by itself
  double first_step = 0;
  std::size_t most_steps = 20000;
};

// From time 0 until `finished` is true of a state or the time is up. Throws std::runtime_error if the steps
// become too many.
Trajectory integrate(const Slope& slope, State start, double duration, const Accuracy& accuracy,
                     const std::function<bool(const Trajectory&)>& finished);

}  // namespace implosion
