// SPDX-License-Identifier: Apache-2.0
// X-ray images of a capsule, seen from its equator: for each pixel the emission of the hot spot along a line,
// less what the shell in front of it absorbs.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "dynamics.h"

namespace implosion {

constexpr int kPixels = 64;          // along each side; rows along the axis from the top, then columns
constexpr double kPixelSize = 2e-6;  // m, at the capsule
constexpr int kBands = 4;
constexpr std::array<double, kBands> kPhotonKev = {8, 11, 15, 20};
constexpr std::size_t kImageValues = std::size_t{kBands} * kPixels * kPixels;

// The surfaces of the shell as functions of the direction.
class Outline {
 public:
  explicit Outline(const Moment& moment);

  struct Point {
    double inner;
    double outer;
    double density;
  };
  Point at(double cosine) const;
  double most_inner() const { return most_inner_; }
  double most_outer() const { return most_outer_; }

 private:
  std::vector<Point> points_;
  double most_inner_ = 0;
  double most_outer_ = 0;
};

// Emission a metre along the profile of the hot spot in each band, as a function of x^2 (hot_spot.h); 0 from
// 1 on.
class Emission {
 public:
  using Bands = std::array<double, kBands>;

  explicit Emission(const std::function<Bands(double x_squared)>& of);
  // PW/(m sr keV)/cm^2.
  static Emission of(const Moment& moment);

  Bands at(double x_squared) const;

 private:
  std::vector<Bands> values_;
};

// Optical depth a metre of cold fuel in each band: inverse bremsstrahlung at 0.3 keV (Atzeni and
// Meyer-ter-Vehn, chapter 10).
Emission::Bands absorption(double density);

// Fills `images` (kBands images, one after the other): PW/(cm^2 sr keV).
void project(const Outline& outline, const Emission& emission, std::span<float> images);

}  // namespace implosion
