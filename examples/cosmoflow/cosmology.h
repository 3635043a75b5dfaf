// SPDX-License-Identifier: Apache-2.0
// The smooth universe and its linear fluctuations. Flat Lambda-CDM, radiation ignored.
// Units: lengths Mpc/h, wave numbers h/Mpc, H0 = 1 in time variables.
#pragma once

#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

namespace cola {

// Expected failures: a sentence for the user, an exit code for programs.
enum class ExitCode {
  ok = 0,
  failed = 1,  // the simulation itself failed, or a bug
  usage = 2,   // an option is unknown, missing or out of its range
  input = 3,   // an input file cannot be read or is wrong
  output = 4,  // the result cannot be written
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

struct Cosmology {
  double omega_m = 0.3;    // all matter, today, in units of the critical density
  double sigma_8 = 0.8;    // rms of the linear density in spheres of 8 Mpc/h, today
  double n_s = 0.96;       // spectral index of the primordial spectrum
  double h = 0.7;          // H0 / (100 km/s/Mpc)
  double omega_b = 0.045;  // baryons, part of omega_m
};

// Transfer functions of Eisenstein & Hu 1998 (astro-ph/9709112); k in h/Mpc, T(k -> 0) = 1.
// The full form is their section 3 (equations 2 to 24), with acoustic oscillations; the smooth one is
// section 4.2 (equations 26 to 31) and serves as a cross-check.
double transfer_eh98(const Cosmology& cosmology, double k);
double transfer_eh98_no_wiggle(const Cosmology& cosmology, double k);

// rms^2 of the linear field in top-hat spheres of `radius` Mpc/h, for any power spectrum in (Mpc/h)^3.
template <typename Power>
double top_hat_variance(const Power& power, double radius);

// The linear power spectrum at z = 0, (Mpc/h)^3, normalised to sigma_8.
class LinearPower {
 public:
  explicit LinearPower(const Cosmology& cosmology);
  double operator()(double k) const;  // 0 at k = 0

 private:
  Cosmology cosmology_;
  double amplitude_ = 1;
};

// Linear and second-order growth, and the time integrals of the leapfrog.
// T is the operator Q d/da with Q = a^3 E(a): velocities of the code are T[x] = a^2 (dx/dt) / H0.
class Growth {
 public:
  explicit Growth(double omega_m);

  // At scale factor a in [1e-3, 1]; d1(1) = 1. d2 is negative, close to -3/7 d1^2: multiply it with the
  // second-order displacement as it is (Tassev, Zaldarriaga & Eisenstein 2013, arXiv:1301.0322, section 2).
  double d1(double a) const { return at(a)[0]; }
  double t_d1(double a) const { return at(a)[1]; }
  double d2(double a) const { return at(a)[2]; }
  double t_d2(double a) const { return at(a)[3]; }

  double hubble(double a) const;  // E(a) = H(a) / H0
  double q(double a) const { return a * a * a * hubble(a); }

  // Integral of a'^power / Q(a') from a to b; negative where b < a.
  double integral_over_q(double a, double b, double power) const;

 private:
  using State = std::array<double, 4>;  // D1, T[D1], D2, T[D2]
  State derivative(double log_a, const State& state) const;
  State at(double a) const;

  double omega_m_;
  double step_ = 0;
  std::vector<State> states_;
  std::vector<State> slopes_;
};

template <typename Power>
double top_hat_variance(const Power& power, double radius) {
  const double low = std::log(1e-5), high = std::log(1e2);
  const int steps = 4000;
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    const double k = std::exp(low + (high - low) * i / steps);
    const double x = k * radius;
    const double window = x < 0.01 ? 1 - x * x / 10 : 3 * (std::sin(x) - x * std::cos(x)) / (x * x * x);
    const double weight = i == 0 || i == steps ? 0.5 : 1.0;
    sum += weight * k * k * k * power(k) * window * window;
  }
  return sum * (high - low) / steps / (2 * std::numbers::pi * std::numbers::pi);
}

}  // namespace cola
