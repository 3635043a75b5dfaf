// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/layer_constants.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

namespace wflow::trainer {
namespace {

using Sizes = std::vector<std::int64_t>;

std::int64_t product(const Sizes& sizes, std::size_t count) {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(count), std::int64_t{1},
                         std::multiplies<>());
}

// An axis that a spectral convolution transforms.
struct Axis {
  std::int64_t cells = 1;
  Sizes modes;
};

std::vector<Axis> axes_of(const Layer& layer) {
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < 3; ++i)
    if (layer.input.extent[i] > 1) axes.push_back({layer.input.extent[i], {}});
  std::size_t at = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    if (layer.input.extent[i] == 1) continue;
    Sizes& modes = axes[at++].modes;
    for (std::int64_t k = 0; k < layer.kernel[i]; ++k) modes.push_back(k);
    for (std::int64_t k = layer.kernel[i]; k > 0 && at < axes.size(); --k) modes.push_back(-k);
  }
  return axes;
}

// The angle of a mode at a cell, from whole numbers: large products keep their digits.
double angle(std::int64_t mode, std::int64_t cell, std::int64_t cells) {
  const std::int64_t turn = ((mode * cell) % cells + cells) % cells;
  return 2 * std::numbers::pi * static_cast<double>(turn) / static_cast<double>(cells);
}

struct Matrix {
  Sizes shape;
  std::vector<float> values;
  Matrix(std::int64_t rows, std::int64_t columns)
      : shape{rows, columns}, values(static_cast<std::size_t>(rows * columns)) {}
  void set(std::int64_t row, std::int64_t column, double value) {
    values[static_cast<std::size_t>(row * shape[1] + column)] = static_cast<float>(value);
  }
};

// exp(-i angle) of a real value.
Matrix from_real(const Axis& axis) {
  const auto modes = static_cast<std::int64_t>(axis.modes.size());
  Matrix matrix(axis.cells, 2 * modes);
  for (std::int64_t r = 0; r < axis.cells; ++r) {
    for (std::int64_t k = 0; k < modes; ++k) {
      const double a = angle(axis.modes[static_cast<std::size_t>(k)], r, axis.cells);
      matrix.set(r, 2 * k, std::cos(a));
      matrix.set(r, 2 * k + 1, -std::sin(a));
    }
  }
  return matrix;
}

// The real part of exp(i angle) times a mode; a mode beside 0 stands for its conjugate too.
Matrix to_real(const Axis& axis) {
  const auto modes = static_cast<std::int64_t>(axis.modes.size());
  Matrix matrix(2 * modes, axis.cells);
  for (std::int64_t k = 0; k < modes; ++k) {
    const std::int64_t mode = axis.modes[static_cast<std::size_t>(k)];
    const double factor = (mode == 0 ? 1.0 : 2.0) / static_cast<double>(axis.cells);
    for (std::int64_t r = 0; r < axis.cells; ++r) {
      matrix.set(2 * k, r, factor * std::cos(angle(mode, r, axis.cells)));
      matrix.set(2 * k + 1, r, -factor * std::sin(angle(mode, r, axis.cells)));
    }
  }
  return matrix;
}

// Complex to complex: from the cells to the modes, or back.
Matrix complex_matrix(const Axis& axis, bool inverse) {
  const auto modes = static_cast<std::int64_t>(axis.modes.size());
  const double scale = inverse ? 1.0 / static_cast<double>(axis.cells) : 1.0;
  Matrix matrix(2 * (inverse ? modes : axis.cells), 2 * (inverse ? axis.cells : modes));
  for (std::int64_t k = 0; k < modes; ++k) {
    for (std::int64_t r = 0; r < axis.cells; ++r) {
      const double a = angle(axis.modes[static_cast<std::size_t>(k)], r, axis.cells);
      const double real = scale * std::cos(a);
      const double imaginary = scale * (inverse ? std::sin(a) : -std::sin(a));
      const std::int64_t row = 2 * (inverse ? k : r);
      const std::int64_t column = 2 * (inverse ? r : k);
      matrix.set(row, column, real);
      matrix.set(row, column + 1, imaginary);
      matrix.set(row + 1, column, -imaginary);
      matrix.set(row + 1, column + 1, real);
    }
  }
  return matrix;
}

// Multiplies the last `factors` axes (1, or 2 with the parts of a complex number) after moving axis `moved`
// (of `shape`) to the place before the last one.
SpectralStep step_of(std::string name, Sizes shape, std::size_t moved, std::size_t factors, Matrix matrix) {
  SpectralStep step;
  step.order.push_back(0);
  const std::size_t last = shape.size() - 1;
  Sizes permuted;
  const auto take = [&](std::size_t axis) {
    step.order.push_back(static_cast<std::int64_t>(axis) + 1);
    permuted.push_back(shape[axis]);
  };
  for (std::size_t axis = 0; axis < last; ++axis)
    if (axis != moved) take(axis);
  if (moved < last) take(moved);
  take(last);
  const std::size_t outer = permuted.size() - factors;
  step.merged = {product(permuted, outer), matrix.shape[0]};
  step.shape = std::move(shape);
  step.matrix = {std::move(name), std::move(matrix.shape), std::move(matrix.values)};
  return step;
}

Sizes grid_shape(std::int64_t channels, const TensorShape& grid) {
  return {1, channels, grid.extent[0], grid.extent[1], grid.extent[2]};
}

}  // namespace

std::int64_t SpectralStep::rows() const {
  return merged[0] * merged[1];
}

SpectralPlan spectral_plan(const Layer& layer) {
  const std::vector<Axis> axes = axes_of(layer);
  const std::size_t last = axes.size() - 1;
  SpectralPlan plan;
  const auto name = [&](const char* part, std::size_t i) {
    return fmt::format("{}.{}{}", layer.name, part, i);
  };
  // [in, n1, .., nd] -> [in, n1, .., md, 2] -> [in, .., md, m(d-1), 2] -> ... -> [in, md, .., m1, 2]
  Sizes shape = {layer.input.channels};
  for (const Axis& axis : axes) shape.push_back(axis.cells);
  plan.forward.push_back(step_of(name("forward", 0), shape, last + 1, 1, from_real(axes[last])));
  shape.back() = static_cast<std::int64_t>(axes[last].modes.size());
  shape.push_back(2);
  for (std::size_t j = last; j-- > 0;) {
    plan.forward.push_back(
        step_of(name("forward", last - j), shape, j + 1, 2, complex_matrix(axes[j], false)));
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(j) + 1);
    shape.insert(shape.end() - 1, static_cast<std::int64_t>(axes[j].modes.size()));
  }
  // [out, md, .., m1, 2] -> [out, md, .., m2, n1, 2] -> ... -> [out, n1, .., nd]
  shape.front() = layer.output.channels;
  for (std::size_t j = 0; j < last; ++j) {
    const std::size_t place = 1 + last - j;  // of the modes of axis j, after md to m(j+1)
    plan.inverse.push_back(step_of(name("inverse", j), shape, place, 2, complex_matrix(axes[j], true)));
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(place));
    shape.insert(shape.end() - 1, axes[j].cells);
  }
  plan.inverse.push_back(step_of(name("inverse", last), shape, 1, 2, to_real(axes[last])));
  return plan;
}

// Vaswani et al. 2017, an equal part of the channels for each axis.
LayerConstant position_table(const Layer& layer) {
  const TensorShape& grid = layer.input;
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (grid.extent[axis] > 1) axes.push_back(axis);
  const std::int64_t part = grid.channels / static_cast<std::int64_t>(axes.size());
  LayerConstant table = {layer.name + ".table", grid_shape(grid.channels, grid), {}};
  for (std::int64_t c = 0; c < grid.channels; ++c) {
    for (std::int64_t cell = 0; cell < grid.voxels(); ++cell) {
      const std::int64_t place[] = {cell / (grid.extent[1] * grid.extent[2]),
                                    cell / grid.extent[2] % grid.extent[1], cell % grid.extent[2]};
      const auto of_axis = static_cast<std::size_t>(part > 0 ? c / part : 0);
      double value = 0;  // channels that no axis gets
      if (part > 0 && of_axis < axes.size()) {
        const std::int64_t i = c % part;
        const double frequency =
            std::pow(10000.0, -static_cast<double>(i / 2 * 2) / static_cast<double>(part));
        const double a = static_cast<double>(place[axes[of_axis]]) * frequency;
        value = i % 2 == 0 ? std::sin(a) : std::cos(a);
      }
      table.values.push_back(static_cast<float>(value));
    }
  }
  return table;
}

LayerConstant coordinate_table(const Layer& layer) {
  const TensorShape& grid = layer.input;
  LayerConstant table = {layer.name + ".table", grid_shape(layer.output.channels - grid.channels, grid), {}};
  std::int64_t stride = grid.voxels();
  for (const std::int64_t n : grid.extent) {
    stride /= n;
    for (std::int64_t cell = 0; n > 1 && cell < grid.voxels(); ++cell)
      table.values.push_back(static_cast<float>(cell / stride % n) / static_cast<float>(n - 1));
  }
  return table;
}

std::vector<LayerConstant> constants_of(const Layer& layer) {
  if (layer.kind == LayerKind::coordinates) return {coordinate_table(layer)};
  if (layer.kind == LayerKind::positions && layer.parameters.empty()) return {position_table(layer)};
  std::vector<LayerConstant> constants;
  if (layer.kind != LayerKind::spectral_convolution) return constants;
  const SpectralPlan plan = spectral_plan(layer);
  for (const SpectralStep& step : plan.forward) constants.push_back(step.matrix);
  for (const SpectralStep& step : plan.inverse) constants.push_back(step.matrix);
  return constants;
}

}  // namespace wflow::trainer
