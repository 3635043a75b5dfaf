// SPDX-License-Identifier: Apache-2.0
#include "propose/dense.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace wflow::propose {

// Four sums at once, which the vectoriser may not introduce by itself; their order is fixed.
double dot(std::span<const double> a, std::span<const double> b) {
  constexpr std::size_t kSums = 4;
  const std::size_t count = std::min(a.size(), b.size());
  std::array<double, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void Triangle::append(std::span<const double> row) {
  values_.insert(values_.end(), row.begin(), row.end());
  ++size_;
}

bool factorise(Triangle& matrix) {
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    const std::span<double> row = matrix.row(i);
    for (std::size_t j = 0; j < i; ++j) {
      const std::span<const double> other = matrix.row(j);
      row[j] = (row[j] - dot(row.first(j), other.first(j))) / other[j];
    }
    const double rest = row[i] - dot(row.first(i), row.first(i));
    if (!(rest > 0)) return false;
    row[i] = std::sqrt(rest);
  }
  return true;
}

bool extend(Triangle& factor, std::vector<double> row) {
  const std::size_t size = factor.size();
  const std::span<double> before = std::span(row).first(size);
  solve_lower(factor, before);
  const double rest = row[size] - dot(before, before);
  if (!(rest > 0)) return false;
  row[size] = std::sqrt(rest);
  factor.append(row);
  return true;
}

void solve_lower(const Triangle& factor, std::span<double> b) {
  for (std::size_t i = 0; i < b.size(); ++i) {
    const std::span<const double> row = factor.row(i);
    b[i] = (b[i] - dot(row.first(i), b.first(i))) / row[i];
  }
}

void solve_upper(const Triangle& factor, std::span<double> b) {
  for (std::size_t i = b.size(); i-- > 0;) {
    const std::span<const double> row = factor.row(i);
    b[i] /= row[i];
    for (std::size_t j = 0; j < i; ++j) b[j] -= row[j] * b[i];
  }
}

std::vector<double> solve(const Triangle& factor, std::span<const double> b) {
  std::vector<double> x(b.begin(), b.end());
  solve_lower(factor, x);
  solve_upper(factor, x);
  return x;
}

// Row i of the result is column i of L^-1 turned into a row of (L L^T)^-1 = L^-T L^-1.
Triangle inverse(const Triangle& factor) {
  const std::size_t size = factor.size();
  std::vector<std::vector<double>> columns(size);  // of L^-1, from their diagonal on
  for (std::size_t j = 0; j < size; ++j) {
    std::vector<double>& column = columns[j];
    column.resize(size - j);
    column[0] = 1 / factor.row(j)[j];
    for (std::size_t i = j + 1; i < size; ++i) {
      const std::span<const double> row = factor.row(i);
      column[i - j] = -dot(row.subspan(j, i - j), std::span(column).first(i - j)) / row[i];
    }
  }
  Triangle result(size);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j <= i; ++j)
      result.row(i)[j] = dot(columns[i], std::span(columns[j]).subspan(i - j));
  }
  return result;
}

double log_determinant(const Triangle& factor) {
  double sum = 0;
  for (std::size_t i = 0; i < factor.size(); ++i) sum += std::log(factor.row(i)[i]);
  return 2 * sum;
}

namespace {

constexpr double kArmijo = 1e-4;
constexpr double kSmallestStep = 1e-10;
constexpr double kSmallestGain = 1e-10;  // of a step, relative to the value
constexpr int kMostHalvings = 30;
constexpr double kLongestFirstStep = 0.2;

class Descent {
 public:
  Descent(const Function& function, std::vector<double> start, const Box& box)
      : function_(function), box_(box), point_(std::move(start)), size_(point_.size()) {
    for (std::size_t i = 0; i < size_; ++i) point_[i] = std::clamp(point_[i], box_.low[i], box_.high[i]);
    gradient_.resize(size_);
    value_ = function_(point_, gradient_);
    forget();
  }

  // False where no step gains anything.
  bool step() {
    find_free();
    const std::vector<double> direction = direction_of_descent();
    double length = 1;
    if (fresh_) length = std::min(1.0, kLongestFirstStep / (largest(direction) + kSmallestStep));
    std::vector<double> next(size_), slope(size_);
    for (int i = 0; i < kMostHalvings; ++i, length /= 2) {
      double expected = 0, moved = 0;
      for (std::size_t k = 0; k < size_; ++k) {
        next[k] = std::clamp(point_[k] + length * direction[k], box_.low[k], box_.high[k]);
        expected += gradient_[k] * (next[k] - point_[k]);
        moved = std::max(moved, std::abs(next[k] - point_[k]));
      }
      if (moved < kSmallestStep) break;
      const double value = function_(next, slope);
      if (!std::isfinite(value) || value > value_ + kArmijo * expected) continue;
      const bool gains = value_ - value > kSmallestGain * (1 + std::abs(value));
      accept(std::move(next), std::move(slope), value);
      return gains;
    }
    if (fresh_) return false;
    forget();  // the curvature found so far has misled it
    return true;
  }

  Minimum result() && { return {std::move(point_), value_}; }

 private:
  static double largest(const std::vector<double>& values) {
    double most = 0;
    for (const double value : values) most = std::max(most, std::abs(value));
    return most;
  }

  void forget() {
    inverse_.assign(size_ * size_, 0);
    for (std::size_t i = 0; i < size_; ++i) inverse_[i * size_ + i] = 1;
    fresh_ = true;
  }

  void find_free() {
    free_.assign(size_, true);
    for (std::size_t i = 0; i < size_; ++i) {
      if ((point_[i] <= box_.low[i] && gradient_[i] > 0) || (point_[i] >= box_.high[i] && gradient_[i] < 0))
        free_[i] = false;
    }
  }

  std::vector<double> direction_of_descent() {
    std::vector<double> direction(size_);
    double descent = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      if (!free_[i]) continue;
      for (std::size_t j = 0; j < size_; ++j) {
        if (free_[j]) direction[i] -= inverse_[i * size_ + j] * gradient_[j];
      }
      descent += direction[i] * gradient_[i];
    }
    if (descent < 0) return direction;
    forget();
    for (std::size_t i = 0; i < size_; ++i) direction[i] = free_[i] ? -gradient_[i] : 0;
    return direction;
  }

  // Updates the inverse of the curvature.
  void accept(std::vector<double> next, std::vector<double> slope, double value) {
    std::vector<double> s(size_), y(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      s[i] = next[i] - point_[i];
      y[i] = slope[i] - gradient_[i];
    }
    point_ = std::move(next);
    gradient_ = std::move(slope);
    value_ = value;
    const double sy = dot(s, y);
    if (!(sy > kSmallestStep * dot(s, s))) return;
    if (fresh_) {
      const double scale = sy / dot(y, y);
      for (std::size_t i = 0; i < size_; ++i) inverse_[i * size_ + i] = scale;
    }
    fresh_ = false;
    std::vector<double> hy(size_);
    for (std::size_t i = 0; i < size_; ++i) hy[i] = dot(std::span(inverse_).subspan(i * size_, size_), y);
    const double factor = (1 + dot(y, hy) / sy) / sy;
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < size_; ++j)
        inverse_[i * size_ + j] += factor * s[i] * s[j] - (hy[i] * s[j] + s[i] * hy[j]) / sy;
    }
  }

  const Function& function_;
  const Box& box_;
  std::vector<double> point_;
  std::size_t size_;
  std::vector<double> gradient_;
  double value_ = 0;
  std::vector<double> inverse_;
  std::vector<bool> free_;
  bool fresh_ = true;  // no curvature is known
};

}  // namespace

Minimum minimize(const Function& function, std::vector<double> start, const Box& box, int most_steps) {
  Descent descent(function, std::move(start), box);
  for (int i = 0; i < most_steps; ++i) {
    if (!descent.step()) break;
  }
  return std::move(descent).result();
}

}  // namespace wflow::propose
