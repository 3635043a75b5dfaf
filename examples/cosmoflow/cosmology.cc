// SPDX-License-Identifier: Apache-2.0
#include "cosmology.h"

#include <algorithm>
#include <cmath>

namespace cola {
namespace {

constexpr double kE = std::numbers::e;
constexpr double kTheta = 2.7255 / 2.7;  // temperature of the microwave background over 2.7 K
constexpr double kStartA = 1e-3;         // deep in matter domination: the growing mode is known there
constexpr int kGrowthSteps = 2000;

// EH98 equations 19 and 20.
double pressureless(double q, double alpha, double beta) {
  const double l = std::log(kE + 1.8 * beta * q);
  const double c = 14.2 / alpha + 386 / (1 + 69.9 * std::pow(q, 1.08));
  return l / (l + c * q * q);
}

}  // namespace

double transfer_eh98(const Cosmology& cosmology, double k) {
  if (k <= 0) return 1;
  const double w = cosmology.omega_m * cosmology.h * cosmology.h;
  const double b = cosmology.omega_b * cosmology.h * cosmology.h;
  const double f = cosmology.omega_b / cosmology.omega_m;
  const double kk = k * cosmology.h;  // in 1/Mpc, as the paper has it
  const double theta4 = std::pow(kTheta, 4);

  const double z_eq = 2.5e4 * w / theta4;
  const double k_eq = 0.0746 * w / (kTheta * kTheta);
  const double b1 = 0.313 * std::pow(w, -0.419) * (1 + 0.607 * std::pow(w, 0.674));
  const double b2 = 0.238 * std::pow(w, 0.223);
  const double z_drag =
      1291 * std::pow(w, 0.251) / (1 + 0.659 * std::pow(w, 0.828)) * (1 + b1 * std::pow(b, b2));
  const auto ratio = [&](double z) { return 31.5 * b / theta4 * (1000 / z); };
  const double r_drag = ratio(z_drag), r_eq = ratio(z_eq);
  const double sound = 2 / (3 * k_eq) * std::sqrt(6 / r_eq) *
                       std::log((std::sqrt(1 + r_drag) + std::sqrt(r_drag + r_eq)) / (1 + std::sqrt(r_eq)));
  const double k_silk = 1.6 * std::pow(b, 0.52) * std::pow(w, 0.73) * (1 + std::pow(10.4 * w, -0.95));
  const double q = kk / (13.41 * k_eq);

  const double a1 = std::pow(46.9 * w, 0.670) * (1 + std::pow(32.1 * w, -0.532));
  const double a2 = std::pow(12.0 * w, 0.424) * (1 + std::pow(45.0 * w, -0.582));
  const double alpha_c = std::pow(a1, -f) * std::pow(a2, -f * f * f);
  const double bb1 = 0.944 / (1 + std::pow(458 * w, -0.708));
  const double bb2 = std::pow(0.395 * w, -0.0266);
  const double beta_c = 1 / (1 + bb1 * (std::pow(1 - f, bb2) - 1));
  const double x = kk * sound;
  const double blend = 1 / (1 + std::pow(x / 5.4, 4));
  const double cold = blend * pressureless(q, 1, beta_c) + (1 - blend) * pressureless(q, alpha_c, beta_c);

  const double y = (1 + z_eq) / (1 + z_drag);
  const double root = std::sqrt(1 + y);
  const double g = y * (-6 * root + (2 + 3 * y) * std::log((root + 1) / (root - 1)));
  const double alpha_b = 2.07 * k_eq * sound * std::pow(1 + r_drag, -0.75) * g;
  const double beta_node = 8.41 * std::pow(w, 0.435);
  const double beta_b = 0.5 + f + (3 - 2 * f) * std::sqrt(17.2 * w * 17.2 * w + 1);
  const double x_node = x / std::cbrt(1 + std::pow(beta_node / x, 3));
  const double bessel = x_node < 1e-4 ? 1 - x_node * x_node / 6 : std::sin(x_node) / x_node;
  const double baryons = (pressureless(q, 1, 1) / (1 + std::pow(x / 5.2, 2)) +
                          alpha_b / (1 + std::pow(beta_b / x, 3)) * std::exp(-std::pow(kk / k_silk, 1.4))) *
                         bessel;
  return f * baryons + (1 - f) * cold;
}

double transfer_eh98_no_wiggle(const Cosmology& cosmology, double k) {
  if (k <= 0) return 1;
  const double w = cosmology.omega_m * cosmology.h * cosmology.h;
  const double b = cosmology.omega_b * cosmology.h * cosmology.h;
  const double f = cosmology.omega_b / cosmology.omega_m;
  const double sound = 44.5 * std::log(9.83 / w) / std::sqrt(1 + 10 * std::pow(b, 0.75));
  const double alpha = 1 - 0.328 * std::log(431 * w) * f + 0.38 * std::log(22.3 * w) * f * f;
  const double gamma = cosmology.omega_m * cosmology.h *
                       (alpha + (1 - alpha) / (1 + std::pow(0.43 * k * cosmology.h * sound, 4)));
  const double q = k * kTheta * kTheta / gamma;
  const double l = std::log(2 * kE + 1.8 * q);
  const double c = 14.2 + 731 / (1 + 62.5 * q);
  return l / (l + c * q * q);
}

LinearPower::LinearPower(const Cosmology& cosmology) : cosmology_(cosmology) {
  amplitude_ = cosmology.sigma_8 * cosmology.sigma_8 / top_hat_variance(*this, 8.0);
}

double LinearPower::operator()(double k) const {
  if (k <= 0) return 0;
  const double transfer = transfer_eh98(cosmology_, k);
  return amplitude_ * std::pow(k, cosmology_.n_s) * transfer * transfer;
}

Growth::Growth(double omega_m) : omega_m_(omega_m), step_(-std::log(kStartA) / kGrowthSteps) {
  const double a = kStartA;
  State state = {a, q(a), -3.0 / 7 * a * a, -6.0 / 7 * a * q(a)};
  const auto advanced = [](const State& s, const State& slope, double by) {
    State r;
    for (int i = 0; i < 4; ++i) r[i] = s[i] + by * slope[i];
    return r;
  };
  for (int n = 0;; ++n) {
    const double log_a = std::log(kStartA) + n * step_;
    const State k1 = derivative(log_a, state);
    states_.push_back(state);
    slopes_.push_back(k1);
    if (n == kGrowthSteps) break;
    const State k2 = derivative(log_a + step_ / 2, advanced(state, k1, step_ / 2));
    const State k3 = derivative(log_a + step_ / 2, advanced(state, k2, step_ / 2));
    const State k4 = derivative(log_a + step_, advanced(state, k3, step_));
    for (int i = 0; i < 4; ++i) state[i] += step_ / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
  }
  // The second order divides by the square of the first order's norm, since it is quadratic in the field.
  const double norm = states_.back()[0];
  for (auto* table : {&states_, &slopes_}) {
    for (State& s : *table) s = {s[0] / norm, s[1] / norm, s[2] / (norm * norm), s[3] / (norm * norm)};
  }
}

double Growth::hubble(double a) const {
  return std::sqrt(omega_m_ / (a * a * a) + 1 - omega_m_);
}

// T[T[D1]] = 1.5 Om a D1 and T[T[D2]] = 1.5 Om a (D2 - D1^2), with T = a^2 E d/d(ln a).
Growth::State Growth::derivative(double log_a, const State& s) const {
  const double a = std::exp(log_a);
  const double t = a * a * hubble(a);
  const double source = 1.5 * omega_m_ * a;
  return {s[1] / t, source * s[0] / t, s[3] / t, source * (s[2] - s[0] * s[0]) / t};
}

// Cubic Hermite interpolation of the table; its error is far below that of the fit formulae.
Growth::State Growth::at(double a) const {
  const double position = std::clamp((std::log(a) - std::log(kStartA)) / step_, 0.0, double{kGrowthSteps});
  const int n = std::min(static_cast<int>(position), kGrowthSteps - 1);
  const double t = position - n;
  const double h00 = (1 + 2 * t) * (1 - t) * (1 - t), h10 = t * (1 - t) * (1 - t);
  const double h01 = t * t * (3 - 2 * t), h11 = t * t * (t - 1);
  State r;
  for (int i = 0; i < 4; ++i) {
    r[i] = h00 * states_[n][i] + h01 * states_[n + 1][i] +
           step_ * (h10 * slopes_[n][i] + h11 * slopes_[n + 1][i]);
  }
  return r;
}

double Growth::integral_over_q(double a, double b, double power) const {
  const int intervals = 64;  // Simpson; the integrand is smooth over one step
  const double width = (b - a) / intervals;
  double sum = 0;
  for (int i = 0; i <= intervals; ++i) {
    const double x = a + i * width;
    const double weight = i == 0 || i == intervals ? 1 : (i % 2 == 1 ? 4 : 2);
    sum += weight * std::pow(x, power) / q(x);
  }
  return sum * width / 3;
}

}  // namespace cola
