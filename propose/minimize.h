// SPDX-License-Identifier: Apache-2.0
// The minimum of a smooth function in a box.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace wflow::propose {

// The value at a point; writes the gradient, which has the point's length.
using Function = std::function<double(std::span<const double> point, std::span<double> gradient)>;

struct Box {
  std::vector<double> low, high;
};

struct Minimum {
  std::vector<double> point;
  double value = 0;
};

// BFGS (Nocedal and Wright 2006, Numerical Optimization, algorithm 6.1) on the coordinates that are not held
// by a bound, with steps projected into the box (Bertsekas 1982, SIAM J. Control 20:221) and halved until
// they gain enough (Armijo). Never returns a point that is worse than `start`.
Minimum minimize(const Function& function, std::vector<double> start, const Box& box, int most_steps);

}  // namespace wflow::propose
