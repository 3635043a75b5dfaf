// SPDX-License-Identifier: Apache-2.0
// The motion of a capsule from the end of its acceleration: a shell of cold fuel flies inward and compresses
// the hot spot until the hot spot stops it. The shell is cut into cones around the axis; in each cone thin
// layers of equal mass move along the radius, with fuel between them that is compressed and shocked. All
// cones push against one hot spot. The drive's asymmetry makes some of them faster: they arrive first, and
// the kinetic energy of the others compresses nothing.
#pragma once

#include <array>
#include <vector>

#include "hot_spot.h"
#include "ode.h"

namespace implosion {

struct Capsule {
  double laser_energy_mj = 1.8;
  double thickness_um = 70;  // of the ice at first, around 0.9 mm of vapour
  double adiabat = 2;        // pressure of the shell over that of a degenerate electron gas
  double p2 = 0;             // the drive is 1 + p2 P2(cos angle) + p4 P4(cos angle)
  double p4 = 0;
};

// The processes that act. Tests switch them off.
struct Physics {
  bool radiation = true;    // the hot spot loses bremsstrahlung
  bool conduction = true;   // it evaporates fuel of the shell
  bool burn = true;         // it reacts, and alpha particles heat it
  int layers = 3;           // of the shell in each cone; 1: a thin shell without thickness and pressure
  double tolerance = 1e-6;  // relative error of a step
};

constexpr int kCones = 8;  // from the equator to the pole; the other half is its mirror image

// Gauss's points and weights for cos(angle) from 0 to 1.
struct Directions {
  std::array<double, kCones> cosine;
  std::array<double, kCones> weight;
};
const Directions& directions();

// The Legendre polynomial P_l.
double legendre(int l, double cosine);
// The coefficients of P0, P2, ..., P14 of the even function through values at directions().
std::array<double, kCones> legendre_coefficients(const std::array<double, kCones>& values);

// A moment of the motion. SI, temperatures in keV, energies of the whole capsule.
struct Moment {
  std::array<double, kCones> inner_radius;
  std::array<double, kCones> outer_radius;
  std::array<double, kCones> shell_column;  // integral of the shell's density along the radius
  double mean_cube = 0;                     // of the inner radius over all directions
  double pressure = 0;
  double central_kev = 0;
  double hot_spot_mass = 0;
  double hot_spot_energy = 0;
  double shell_energy = 0;  // internal
  double kinetic_energy = 0;
  double radiated_energy = 0;
  double alpha_energy = 0;  // put into the hot spot

  double hot_spot_column() const;  // along the mean radius
};

class Motion {
 public:
  // Solves the equations. Throws std::runtime_error if a cone reaches the centre.
  Motion(const Capsule& capsule, const Physics& physics, const ProfileTable& table);

  double start_speed() const { return speed_; }  // of the mean cone
  double shell_mass() const { return mass_; }
  double end() const { return trajectory_.end(); }
  std::size_t steps() const { return trajectory_.steps(); }
  Moment at(double time) const { return moment(trajectory_.at(time)); }

  // Totals and means over the burn: neutrons, the mean time of their emission and its standard deviation, and
  // the mean temperature of what reacts.
  double neutrons() const;
  double bang_time() const;
  double burn_deviation() const;
  double burn_kev() const;

 private:
  // Fuel between two layers, as that of all cones together.
  struct Zone {
    double density;
    double cold_energy;  // of the degenerate electrons, at the adiabat
    double pressure;     // of the cold energy and of the heat
    double
        viscosity;  // pressure more, where layers approach: it turns their motion into heat, as a shock does
    double growth;  // of the volume a second
  };

  void slope(std::span<const double> state, double time, std::span<double> slope) const;
  State start(const Capsule& capsule) const;
  Moment moment(const State& state) const;
  Zone zone(const double* cone, int layer) const;
  std::size_t cone_values() const { return static_cast<std::size_t>(3 * physics_.layers - 1); }
  double mean_radius(const State& state) const;
  Accuracy accuracy() const;
  bool finished(const Trajectory& trajectory) const;

  const Physics physics_;
  const ProfileTable& table_;
  double adiabat_;
  double mass_;
  double speed_;
  Trajectory trajectory_;
};

}  // namespace implosion
