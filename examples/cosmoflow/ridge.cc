// SPDX-License-Identifier: Apache-2.0
#include "ridge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace cola {
namespace {

using Vec2 = double __attribute__((vector_size(16)));

constexpr double kWeakest = 1e-6;
constexpr int kStrengths = 9;  // a decade apart

// Dot products of `b` with four rows at once: the row of b is then read from memory a quarter as often.
void dot4(const double* const a[4], const double* b, std::size_t n, double out[4]) {
  Vec2 sum[4] = {};
  std::size_t i = 0;
  for (; i + 2 <= n; i += 2) {
    Vec2 y;
    std::memcpy(&y, b + i, sizeof y);
    for (int r = 0; r < 4; ++r) {
      Vec2 x;
      std::memcpy(&x, a[r] + i, sizeof x);
      sum[r] += x * y;
    }
  }
  for (int r = 0; r < 4; ++r) out[r] = sum[r][0] + sum[r][1] + (i < n ? a[r][i] * b[i] : 0);
}

double dot(const double* a, const double* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

Matrix transposed(const Matrix& m) {
  Matrix t(m.columns, m.rows);
  for (std::size_t i = 0; i < m.rows; ++i) {
    for (std::size_t j = 0; j < m.columns; ++j) t.row(j)[i] = m.row(i)[j];
  }
  return t;
}

// a b^T; only the columns up to the diagonal where `lower`.
Matrix products(const Matrix& a, const Matrix& b, bool lower) {
  Matrix result(a.rows, b.rows);
  for (std::size_t i = 0; i < a.rows; i += 4) {
    const double* rows[4];
    for (std::size_t r = 0; r < 4; ++r) rows[r] = a.row(std::min(i + r, a.rows - 1));
    const std::size_t count = std::min<std::size_t>(4, a.rows - i);
    const std::size_t last = lower ? std::min(i + 4, b.rows) : b.rows;
    for (std::size_t j = 0; j < last; ++j) {
      double four[4];
      dot4(rows, b.row(j), a.columns, four);
      for (std::size_t r = 0; r < count; ++r) result.row(i + r)[j] = four[r];
    }
  }
  return result;
}

struct Standardiser {
  std::vector<double> mean, deviation;
  explicit Standardiser(const Matrix& m) : mean(m.columns), deviation(m.columns) {
    const auto n = static_cast<double>(m.rows);
    for (std::size_t i = 0; i < m.rows; ++i) {
      for (std::size_t j = 0; j < m.columns; ++j) mean[j] += m.row(i)[j] / n;
    }
    for (std::size_t i = 0; i < m.rows; ++i) {
      for (std::size_t j = 0; j < m.columns; ++j) deviation[j] += std::pow(m.row(i)[j] - mean[j], 2) / n;
    }
    // A feature that never changes says nothing: it becomes zero.
    for (std::size_t j = 0; j < m.columns; ++j) {
      deviation[j] = std::sqrt(deviation[j]);
      if (deviation[j] < 1e-12 * (1 + std::abs(mean[j])))
        deviation[j] = std::numeric_limits<double>::infinity();
    }
  }
  Matrix operator()(const Matrix& m) const {
    Matrix r(m.rows, m.columns);
    for (std::size_t i = 0; i < m.rows; ++i) {
      for (std::size_t j = 0; j < m.columns; ++j) r.row(i)[j] = (m.row(i)[j] - mean[j]) / deviation[j];
    }
    return r;
  }
};

Matrix with_products(const Matrix& m) {
  Matrix r(m.rows, m.columns + m.columns * (m.columns + 1) / 2);
  for (std::size_t i = 0; i < m.rows; ++i) {
    const double* from = m.row(i);
    double* to = std::copy(from, from + m.columns, r.row(i));
    for (std::size_t j = 0; j < m.columns; ++j) {
      for (std::size_t k = 0; k <= j; ++k) *to++ = from[j] * from[k];
    }
  }
  return r;
}

double mean_absolute_error(const Matrix& prediction, const Matrix& targets, std::size_t column) {
  double sum = 0;
  for (std::size_t i = 0; i < targets.rows; ++i)
    sum += std::abs(prediction.row(i)[column] - targets.row(i)[column]);
  return targets.rows > 0 ? sum / static_cast<double>(targets.rows) : 0;
}

}  // namespace

bool cholesky(Matrix& a) {
  const std::size_t n = a.rows;
  for (std::size_t i = 0; i < n; i += 4) {
    const std::size_t count = std::min<std::size_t>(4, n - i);
    double* rows[4];
    for (std::size_t r = 0; r < 4; ++r) rows[r] = a.row(std::min(i + r, n - 1));
    for (std::size_t j = 0; j < i; ++j) {
      double four[4];
      dot4(rows, a.row(j), j, four);
      for (std::size_t r = 0; r < count; ++r) rows[r][j] = (rows[r][j] - four[r]) / a.row(j)[j];
    }
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t j = i; j < i + r; ++j)
        rows[r][j] = (rows[r][j] - dot(rows[r], a.row(j), j)) / a.row(j)[j];
      const double square = rows[r][i + r] - dot(rows[r], rows[r], i + r);
      if (!(square > 0)) return false;
      rows[r][i + r] = std::sqrt(square);
    }
  }
  return true;
}

void cholesky_solve(const Matrix& factor, std::vector<double>& b) {
  const std::size_t n = factor.rows;
  for (std::size_t i = 0; i < n; ++i) b[i] = (b[i] - dot(factor.row(i), b.data(), i)) / factor.row(i)[i];
  for (std::size_t i = n; i-- > 0;) {
    b[i] /= factor.row(i)[i];
    for (std::size_t j = 0; j < i; ++j) b[j] -= factor.row(i)[j] * b[i];
  }
}

RidgeResult ridge(const Matrix& train, const Matrix& train_y, const Matrix& validation,
                  const Matrix& validation_y, const Matrix& test, int degree) {
  const Standardiser base(train);
  Matrix x = base(train), xv = base(validation), xt = base(test);
  if (degree == 2) {
    x = with_products(x);
    const Standardiser again(x);
    x = again(x);
    xv = again(with_products(xv));
    xt = again(with_products(xt));
  }
  const Standardiser of_target(train_y);
  const Matrix y = transposed(of_target(train_y));  // one row a target
  const auto unstandardised = [&](double value, std::size_t target) {
    return of_target.mean[target] +
           (std::isinf(of_target.deviation[target]) ? 0 : value * of_target.deviation[target]);
  };

  // In sample space: (X X^T + s) c = y, prediction x X^T c. In feature space: (X^T X + s) w = X^T y,
  // prediction x w.
  const bool by_sample = x.rows < x.columns;
  const Matrix basis = by_sample ? std::move(x) : transposed(x);
  const Matrix gram = products(basis, basis, true);
  const Matrix validation_design = by_sample ? products(xv, basis, false) : std::move(xv);
  const Matrix test_design = by_sample ? products(xt, basis, false) : std::move(xt);
  const Matrix right = by_sample ? y : products(y, basis, false);

  const std::size_t targets = y.rows;
  RidgeResult best{Matrix(test.rows, targets), std::vector<double>(targets)};
  std::vector<double> least(targets, std::numeric_limits<double>::infinity());
  for (int step = 0; step < kStrengths; ++step) {
    const double strength = kWeakest * std::pow(10.0, step);
    Matrix factor = gram;
    for (std::size_t i = 0; i < factor.rows; ++i)
      factor.row(i)[i] += strength * static_cast<double>(train.rows);
    if (!cholesky(factor)) continue;
    for (std::size_t target = 0; target < targets; ++target) {
      std::vector<double> weights(right.row(target), right.row(target) + right.columns);
      cholesky_solve(factor, weights);
      const auto predict = [&](const Matrix& design, Matrix& out) {
        for (std::size_t i = 0; i < design.rows; ++i) {
          out.row(i)[target] = unstandardised(dot(design.row(i), weights.data(), weights.size()), target);
        }
      };
      Matrix guess(validation.rows, targets);
      predict(validation_design, guess);
      const double error = mean_absolute_error(guess, validation_y, target);
      if (error >= least[target]) continue;
      least[target] = error;
      best.strength[target] = strength;
      predict(test_design, best.prediction);
    }
  }
  return best;
}

}  // namespace cola
