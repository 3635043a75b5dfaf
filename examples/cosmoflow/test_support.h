// SPDX-License-Identifier: Apache-2.0
// What the physics tests compare with: measured spectra and the halofit formula.
#pragma once

#include <fftw3.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <numbers>
#include <vector>

#include "buffer.h"
#include "cosmology.h"
#include "simulation.h"

namespace cola::testing {

// Fourier transforms of real boxes of one shape (x slowest).
class ModeMeter {
 public:
  ModeMeter(int nx, int ny, int nz);
  ~ModeMeter();
  ModeMeter(const ModeMeter&) = delete;
  ModeMeter& operator=(const ModeMeter&) = delete;

  Buffer<float>& field() { return field_; }  // to be filled before transform()
  void transform();

  // Calls visit(i, j, l, weight, mode) for each independent mode, zero mode included: wave numbers in units
  // of 2 pi over each side, the weight that counts its conjugate, and the value over the number of cells.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    std::size_t index = 0;
    const float norm = 1.0f / static_cast<float>(field_.size());
    for (int x = 0; x < nx_; ++x) {
      for (int y = 0; y < ny_; ++y) {
        for (int z = 0; z <= nz_ / 2; ++z) {
          const double weight = z == 0 || 2 * z == nz_ ? 1 : 2;
          visit(x <= nx_ / 2 ? x : x - nx_, y <= ny_ / 2 ? y : y - ny_, z, weight, modes_[index++] * norm);
        }
      }
    }
  }

 private:
  int nx_, ny_, nz_;
  Buffer<float> field_;
  Buffer<std::complex<float>> modes_;
  fftwf_plan plan_;
};

// Measured over expected power in bins of k: the sum over the bin's modes of each, so that the spectrum's
// slope within a bin does not matter.
struct RatioBin {
  double k = 0;  // mean, h/Mpc
  double measured = 0, expected = 0;
  double ratio() const { return measured / expected; }
};

// Density contrast of a snapshot, cloud in cell on a mesh of the force mesh's size.
std::vector<float> density_of(const Simulation::View& view, int mesh, int particles);

// `edges` in h/Mpc, one more than bins. `expected(k)` in (Mpc/h)^3. The CIC window is divided out. Adds to
// bins, so that several seeds can be averaged.
template <typename Power>
void add_power(const std::vector<float>& density, int mesh, double box, const std::vector<double>& edges,
               const Power& expected, std::vector<RatioBin>& bins);

// Takahashi et al. 2012 (arXiv:1208.2701), appendix; non-linear P(k) in (Mpc/h)^3 for w = -1.
class Halofit {
 public:
  // `linear` at the time wanted, where matter is `omega_m` of the critical density.
  template <typename Power>
  Halofit(const Power& linear, double omega_m);
  double operator()(double k, double linear) const;

 private:
  double omega_m_, k_sigma_ = 0, slope_ = 0, curvature_ = 0;
};

template <typename Power>
void add_power(const std::vector<float>& density, int mesh, double box, const std::vector<double>& edges,
               const Power& expected, std::vector<RatioBin>& bins) {
  ModeMeter meter(mesh, mesh, mesh);
  std::copy(density.begin(), density.end(), meter.field().begin());
  meter.transform();
  const std::size_t count = edges.size() - 1;
  bins.resize(count);
  std::vector<double> weights(count), k_sum(count);
  const double unit = 2 * std::numbers::pi / box;
  const auto window = [mesh](int i) {
    const double x = std::numbers::pi * i / mesh;
    return i == 0 ? 1.0 : std::pow(std::sin(x) / x, 2);
  };
  meter.for_each([&](int x, int y, int z, double weight, std::complex<float> mode) {
    const double k = unit * std::sqrt(static_cast<double>(x * x + y * y + z * z));
    for (std::size_t b = 0; b < count; ++b) {
      if (k <= 0 || k < edges[b] || k >= edges[b + 1]) continue;
      const double w = window(x) * window(y) * window(z);
      bins[b].measured += weight * std::norm(mode) * box * box * box / (w * w);
      bins[b].expected += weight * expected(k);
      weights[b] += weight;
      k_sum[b] += weight * k;
    }
  });
  for (std::size_t b = 0; b < count; ++b) bins[b].k = weights[b] > 0 ? k_sum[b] / weights[b] : 0;
}

template <typename Power>
Halofit::Halofit(const Power& linear, double omega_m) : omega_m_(omega_m) {
  // sigma^2(R) with a Gaussian window, and its first two logarithmic derivatives.
  const auto moments = [&](double radius) {
    double s0 = 0, s1 = 0, s2 = 0;
    const double low = std::log(1e-4), high = std::log(1e3);
    const int steps = 3000;
    for (int i = 0; i <= steps; ++i) {
      const double k = std::exp(low + (high - low) * i / steps);
      const double x2 = k * k * radius * radius;
      const double term = linear(k) * k * k * k / (2 * std::numbers::pi * std::numbers::pi) * std::exp(-x2);
      s0 += term;
      s1 += term * 2 * x2;
      s2 += term * (4 * x2 - 4 * x2 * x2);
    }
    const double d = (high - low) / steps;
    return std::array<double, 3>{s0 * d, s1 * d, s2 * d};
  };
  double low = std::log(1e-3), high = std::log(1e2);  // sigma falls with R
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (moments(std::exp(middle))[0] > 1 ? low : high) = middle;
  }
  const double radius = std::exp(low);
  const auto [s0, s1, s2] = moments(radius);
  k_sigma_ = 1 / radius;
  slope_ = -3 + s1 / s0;
  curvature_ = s1 * s1 / (s0 * s0) + s2 / s0;
}

}  // namespace cola::testing
