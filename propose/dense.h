// SPDX-License-Identifier: Apache-2.0
// Symmetric positive definite matrices of up to some thousand rows: Cholesky's factor, and systems of
// equations with it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace wflow::propose {

// The lower triangle of a symmetric matrix, or a lower triangular matrix, row by row.
class Triangle {
 public:
  explicit Triangle(std::size_t size = 0) : size_(size), values_(size * (size + 1) / 2) {}
  std::size_t size() const { return size_; }
  std::span<double> row(std::size_t i) { return {values_.data() + i * (i + 1) / 2, i + 1}; }
  std::span<const double> row(std::size_t i) const { return {values_.data() + i * (i + 1) / 2, i + 1}; }
  void append(std::span<const double> row);  // of size() + 1 values

 private:
  std::size_t size_;
  std::vector<double> values_;
};

// Replaces the matrix by its factor L with L L^T = matrix. False if it is not positive definite.
bool factorise(Triangle& matrix);
// The row that L gets when the matrix gets `row`, whose last value is the diagonal's. False as above.
bool extend(Triangle& factor, std::vector<double> row);

// L^-1 b, and L^-T b.
void solve_lower(const Triangle& factor, std::span<double> b);
void solve_upper(const Triangle& factor, std::span<double> b);
// (L L^T)^-1 b
std::vector<double> solve(const Triangle& factor, std::span<const double> b);
// (L L^T)^-1
Triangle inverse(const Triangle& factor);
// The logarithm of the determinant of L L^T.
double log_determinant(const Triangle& factor);

double dot(std::span<const double> a, std::span<const double> b);

// The minimum of a smooth function in a box.

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
