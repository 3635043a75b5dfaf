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

}  // namespace wflow::propose
