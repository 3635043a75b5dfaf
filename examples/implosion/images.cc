// SPDX-License-Identifier: Apache-2.0
#include "images.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "hot_spot.h"

namespace implosion {
namespace {

constexpr int kDirections = 128;  // of the outline's table
constexpr int kProfile = 512;     // of the emission's table
constexpr int kDepths = 32;       // points of a line in the hot spot, and as many in the shell

// The part of a cell of length `step` that lies above 0, for a cell with its middle at `middle`.
double part_above(double middle, double step) {
  return std::clamp(middle / step + 0.5, 0.0, 1.0);
}

// Half of a line through the capsule: its other half is the mirror image.
struct Line {
  double height;  // along the axis
  double offset;  // squared distance from the centre

  template <typename Visit>
  void walk(double most_radius, const Visit& visit) const {
    const double step = std::sqrt(std::max(0.0, most_radius * most_radius - offset)) / kDepths;
    if (step == 0) return;
    for (int k = 0; k < kDepths; ++k) {
      const double depth = (k + 0.5) * step;
      const double radius = std::sqrt(offset + depth * depth);
      visit(radius, height / radius, step);
    }
  }
};

Emission::Bands brightness(const Outline& outline, const Emission& emission, const Line& line) {
  Emission::Bands sum{};
  line.walk(outline.most_inner(), [&](double radius, double cosine, double step) {
    const double x = radius / outline.at(cosine).inner;
    const Emission::Bands here = emission.at(x * x);
    for (int band = 0; band < kBands; ++band) sum[band] += 2 * here[band] * step;  // of both halves
  });
  if (sum == Emission::Bands{}) return sum;
  Emission::Bands depth{};
  line.walk(outline.most_outer(), [&](double radius, double cosine, double step) {
    const Outline::Point shell = outline.at(cosine);
    const double part = part_above(radius - shell.inner, step) * part_above(shell.outer - radius, step);
    if (part == 0) return;
    const Emission::Bands here = absorption(shell.density);
    for (int band = 0; band < kBands; ++band) depth[band] += here[band] * part * step;
  });
  for (int band = 0; band < kBands; ++band) sum[band] *= std::exp(-depth[band]);
  return sum;
}

}  // namespace

Outline::Outline(const Moment& moment) {
  const auto inner = legendre_coefficients(moment.inner_radius);
  const auto outer = legendre_coefficients(moment.outer_radius);
  const auto column = legendre_coefficients(moment.shell_column);
  for (int k = 0; k <= kDirections; ++k) {
    const double cosine = static_cast<double>(k) / kDirections;
    Point point{};
    double along = 0;
    for (int i = 0; i < kCones; ++i) {
      const double polynomial = legendre(2 * i, cosine);
      point.inner += inner[i] * polynomial;
      point.outer += outer[i] * polynomial;
      along += column[i] * polynomial;
    }
    point.density = point.outer > point.inner ? along / (point.outer - point.inner) : 0;
    most_inner_ = std::max(most_inner_, point.inner);
    most_outer_ = std::max(most_outer_, point.outer);
    points_.push_back(point);
  }
}

Outline::Point Outline::at(double cosine) const {
  const double place = std::min(std::abs(cosine) * kDirections, kDirections - 1e-9);
  const auto k = static_cast<std::size_t>(place);
  const double u = place - static_cast<double>(k);
  const Point &a = points_[k], &b = points_[k + 1];
  return {a.inner + u * (b.inner - a.inner), a.outer + u * (b.outer - a.outer),
          a.density + u * (b.density - a.density)};
}

Emission::Emission(const std::function<Bands(double x_squared)>& of) {
  for (int k = 0; k < kProfile; ++k) values_.push_back(of(static_cast<double>(k) / kProfile));
  values_.push_back({});
}

Emission Emission::of(const Moment& moment) {
  const double ions = central_ions(moment.pressure, moment.central_kev);
  return Emission([&](double x_squared) {
    const double fraction = temperature_fraction(x_squared);
    Bands bands;
    for (int band = 0; band < kBands; ++band)
      bands[band] = 1e-19 / (4 * std::numbers::pi) *
                    radiated_spectrum(ions / fraction, moment.central_kev * fraction, kPhotonKev[band]);
    return bands;
  });
}

Emission::Bands Emission::at(double x_squared) const {
  if (x_squared >= 1) return {};
  const double place = x_squared * kProfile;
  const auto k = static_cast<std::size_t>(place);
  const double u = place - static_cast<double>(k);
  Bands bands;
  for (int band = 0; band < kBands; ++band)
    bands[band] = values_[k][band] + u * (values_[k + 1][band] - values_[k][band]);
  return bands;
}

Emission::Bands absorption(double density) {
  constexpr double shell_kev = 0.3, nucleons = 2.5;
  const double grams = 1e-3 * density;  // a cubic centimetre
  const double common = 100 * 2.78 * grams * grams / (nucleons * nucleons * std::sqrt(shell_kev));
  Emission::Bands depth;
  for (int band = 0; band < kBands; ++band) {
    const double energy = kPhotonKev[band];
    depth[band] = common / (energy * energy * energy);  // exp(-energy / T) is nothing
  }
  return depth;
}

// All modes are even: one quarter of the image shows the others.
void project(const Outline& outline, const Emission& emission, std::span<float> images) {
  constexpr int half = kPixels / 2;
  for (int i = 0; i < half; ++i) {
    for (int j = 0; j < half; ++j) {
      const double height = (i + 0.5) * kPixelSize, side = (j + 0.5) * kPixelSize;
      const auto bands = brightness(outline, emission, {height, height * height + side * side});
      for (int band = 0; band < kBands; ++band) {
        for (const int row : {half - 1 - i, half + i})
          for (const int column : {half - 1 - j, half + j})
            images[(static_cast<std::size_t>(band) * kPixels + row) * kPixels + column] =
                static_cast<float>(bands[band]);
      }
    }
  }
}

}  // namespace implosion
