// SPDX-License-Identifier: Apache-2.0
#include "hot_spot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace implosion {
namespace {

constexpr double kElectronMass = 9.1093837e-31;
constexpr double kCoulombLogarithm = 3;
constexpr double kBremsstrahlung = 5.34e-37;  // W m^3 keV^-1/2, of hydrogen isotopes
constexpr double kEscapingKev = 6;
constexpr int kEntries = 400;  // 1.6 % in temperature from one to the next
constexpr int kCells = 400;    // of the profile

double log_step() {
  return std::log(kHottestKev / kColdestKev) / (kEntries - 1);
}

// Spitzer's electron conductivity (NRL Plasma Formulary): 3.2 n T tau / m, in which the density cancels.
// 1/(m s): a heat flux over a gradient of T in joules.
double conductivity(double temperature_kev) {
  const double collision_time = 3.44e11 * std::pow(1e3 * temperature_kev, 1.5) / kCoulombLogarithm;  // s/m^3
  return 3.2 * temperature_kev * kJoulePerKev * collision_time / kElectronMass;
}

}  // namespace

double temperature_fraction(double x_squared) {
  return std::pow(1 - x_squared, 0.4);
}

double central_temperature_kev(double pressure, double mean_cube, double mass) {
  return 2 * std::numbers::pi * pressure * kIonMass * mean_cube * kMassIntegral / mass / kJoulePerKev;
}

double central_ions(double pressure, double central_kev) {
  return pressure / (2 * central_kev * kJoulePerKev);
}

double radiated_power(double ions, double temperature_kev) {
  return kBremsstrahlung * ions * ions * std::sqrt(temperature_kev);
}

double radiated_spectrum(double ions, double temperature_kev, double photon_kev) {
  return kBremsstrahlung * ions * ions / std::sqrt(temperature_kev) * std::exp(-photon_kev / temperature_kev);
}

double ablated_mass_flux(double central_kev, double radius) {
  return 4.0 / 25 * kIonMass * conductivity(central_kev) / radius;
}

double alpha_deposition(double areal_density, double temperature_kev) {
  const double power = std::pow(temperature_kev, 1.25);
  const double range = 10 * 0.025 * power / (1 + 0.0082 * power);  // kg/m^2
  const double tau = areal_density / range;
  if (tau <= 0.5) return 1.5 * tau - 0.8 * tau * tau;
  return 1 - 1 / (4 * tau) + 1 / (160 * tau * tau * tau);
}

ProfileTable::ProfileTable() {
  constexpr double nothing = 1e-60;  // has a logarithm
  for (int k = 0; k < kEntries; ++k) {
    const double central = kColdestKev * std::exp(k * log_step());
    double reactions = nothing, heat = nothing, radiation = nothing;
    for (int cell = 0; cell < kCells; ++cell) {
      const double x = (cell + 0.5) / kCells;
      const double fraction = temperature_fraction(x * x);
      const double volume = x * x / kCells;
      const double rate = volume / (fraction * fraction) * dt_reactivity(central * fraction);
      reactions += rate;
      heat += rate * central * fraction;
      radiation += volume / (fraction * std::sqrt(fraction)) * std::exp(-kEscapingKev / (central * fraction));
    }
    reactions_.push_back(std::log(reactions));
    heat_.push_back(std::log(heat));
    radiation_.push_back(std::log(radiation));
  }
}

// Cubic (Catmull-Rom), so that the integrator of the motion sees smooth slopes.
double ProfileTable::at(const Logarithms& logarithms, double central_kev) const {
  const double place = std::clamp(std::log(central_kev / kColdestKev) / log_step(), 1.0, kEntries - 2.001);
  const auto i = static_cast<std::size_t>(place);
  const double u = place - static_cast<double>(i);
  const double a = logarithms[i - 1], b = logarithms[i], c = logarithms[i + 1], d = logarithms[i + 2];
  return std::exp(b + 0.5 * u * (c - a + u * (2 * a - 5 * b + 4 * c - d + u * (3 * (b - c) + d - a))));
}

double ProfileTable::reacting_kev(double central_kev) const {
  return at(heat_, central_kev) / at(reactions_, central_kev);
}

double dt_reactivity(double temperature_kev) {
  if (temperature_kev < kColdestKev) return 0;
  constexpr double gamow = 34.3827;  // sqrt(keV)
  constexpr double mass = 1124656;   // keV: the reduced mass
  constexpr double c1 = 1.17302e-9, c2 = 1.51361e-2, c3 = 7.51886e-2, c4 = 4.60643e-3, c5 = 1.35e-2,
                   c6 = -1.0675e-4, c7 = 1.366e-5;
  const double t = std::min(temperature_kev, kHottestKev);
  const double theta = t / (1 - t * (c2 + t * (c4 + t * c6)) / (1 + t * (c3 + t * (c5 + t * c7))));
  const double xi = std::cbrt(gamow * gamow / (4 * theta));
  return 1e-6 * c1 * theta * std::sqrt(xi / (mass * t * t * t)) * std::exp(-3 * xi);
}

}  // namespace implosion
