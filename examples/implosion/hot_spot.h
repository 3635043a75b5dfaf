// SPDX-License-Identifier: Apache-2.0
// The hot spot: D-T plasma of one pressure inside of a cold shell. With x = r / (radius of the shell in that
// direction), the temperature is T0 (1 - x^2)^(2/5), the profile of Spitzer conduction in a hot spot that
// ablates its shell (R. Betti et al., Phys. Plasmas 9, 2277 (2002)). SI units, temperatures in keV.
#pragma once

#include <vector>

namespace implosion {

constexpr double kJoulePerKev = 1.602176634e-16;
constexpr double kIonMass = 2.5 * 1.66053907e-27;  // kg, the mean of D and T
constexpr double kAlphaEnergy = 3.54e3 * kJoulePerKev;

// Integrals of the profile over x from 0 to 1. With B for Euler's beta function:
constexpr double kMassIntegral = 0.630568618;    // x^2 T0/T: B(3/2, 3/5) / 2
constexpr double kColumnIntegral = 1.387250959;  // T0/T: B(1/2, 3/5) / 2

// T / T0 at x^2.
double temperature_fraction(double x_squared);

// The central temperature of `mass` kg at a pressure, where `mean_cube` is the mean of the radius cubed over
// all directions.
double central_temperature_kev(double pressure, double mean_cube, double mass);

// Ions a cubic metre at the centre. Electrons are as many, and carry half of the pressure.
double central_ions(double pressure, double central_kev);

// Bremsstrahlung of a plasma of `ions` (and as many electrons) a cubic metre: of all photons, in W/m^3, and
// at a photon energy, in W/m^3/keV.
double radiated_power(double ions, double temperature_kev);
double radiated_spectrum(double ions, double temperature_kev, double photon_kev);

// The mass that conduction evaporates from the shell: kg a second and square metre of a surface at `radius`.
// The heat flux kappa(T) dT/dr of the profile carries the enthalpy 5 T of each new ion and its electron, so
// that the flux is 4/25 m_ion kappa(T0) / radius: the energy stays in the hot spot, which grows and cools.
double ablated_mass_flux(double central_kev, double radius);

// The part of the alpha particles' energy that stays in a hot spot of this areal density (kg/m^2): O. N.
// Krokhin and V. B. Rozanov, Sov. J. Quantum Electron. 2, 393 (1973), with the range of S. Atzeni and J.
// Meyer-ter-Vehn, The Physics of Inertial Fusion (2004), chapter 4.
double alpha_deposition(double areal_density, double temperature_kev);

// Integrals over the profile as functions of the central temperature alone, from tables.
class ProfileTable {
 public:
  ProfileTable();

  // Reactions: the integral of x^2 (T0/T)^2 <sigma v>(T) dx.
  double reactions(double central_kev) const { return at(reactions_, central_kev); }
  // The mean temperature of what reacts, which the neutrons show.
  double reacting_kev(double central_kev) const;
  // Bremsstrahlung that leaves the capsule, over that of T0 everywhere: the integral of
  // x^2 (T0/T)^(3/2) exp(-E/T) dx, with photons above E = 6 keV. The shell absorbs the others near its inner
  // surface and brings their energy back as ablated mass.
  double radiation(double central_kev) const { return at(radiation_, central_kev); }

 private:
  using Logarithms = std::vector<double>;
  double at(const Logarithms& logarithms, double central_kev) const;

  Logarithms reactions_;
  Logarithms heat_;  // of the integral of reactions with the factor T
  Logarithms radiation_;
};

// Where the fit of dt_reactivity() holds.
constexpr double kColdestKev = 0.2;
constexpr double kHottestKev = 100;

// <sigma v> of D + T -> n + alpha in a Maxwellian plasma, in m^3/s: the fit of H.-S. Bosch and G. M. Hale,
// Nucl. Fusion 32, 611 (1992), table VII, good to 0.25 %. Below its range 0, above it the value at its end.
double dt_reactivity(double temperature_kev);

}  // namespace implosion
