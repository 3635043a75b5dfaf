// SPDX-License-Identifier: Apache-2.0
// Ridge regression, with its strength chosen on a validation set.
#pragma once

#include <cstddef>
#include <vector>

namespace cola {

// Row-major.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;
  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
  double* row(std::size_t i) { return values.data() + i * columns; }
  const double* row(std::size_t i) const { return values.data() + i * columns; }
};

// Lower triangle of a symmetric positive matrix -> its Cholesky factor, in place; false where it is not
// positive.
bool cholesky(Matrix& a);
// Solves L L^T x = b in place.
void cholesky_solve(const Matrix& factor, std::vector<double>& b);

struct RidgeResult {
  Matrix prediction;             // for the test set, one column for each target
  std::vector<double> strength;  // chosen, one a target; relative to the number of samples
};

// Features and targets are standardised with the training set's mean and deviation; degree 2 adds all
// products of two features. The strength that gives the least mean absolute error on the validation set is
// taken, target by target. Solves in feature space or in sample space, whichever is smaller.
RidgeResult ridge(const Matrix& train, const Matrix& train_y, const Matrix& validation,
                  const Matrix& validation_y, const Matrix& test, int degree);

}  // namespace cola
