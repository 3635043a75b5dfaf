// SPDX-License-Identifier: Apache-2.0
#include "simulation.h"

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace implosion {
namespace {

void require(double value, const char* name, double least, double most) {
  if (value >= least && value <= most) return;
  throw std::invalid_argument(std::string(name) + " must be from " + std::to_string(least) + " to " +
                              std::to_string(most) + ", found " + std::to_string(value));
}

void check(const Capsule& capsule) {
  require(capsule.laser_energy_mj, "laser_energy", 0.5, 4);
  require(capsule.thickness_um, "thickness", 20, 200);
  require(capsule.adiabat, "adiabat", 1, 10);
  require(capsule.p2, "p2", -0.2, 0.2);
  require(capsule.p4, "p4", -0.2, 0.2);
}

}  // namespace

const std::array<const char*, kScalars> kScalarNames = {
    "log10_yield",                  // of the neutrons
    "bang_time_ns",                 // the mean time of their emission, from the end of the drive
    "burn_width_ps",                // of their emission, full width at half maximum of a Gaussian
    "ion_temperature_kev",          // of what reacts
    "pressure_gbar",                // this and the next at the bang time
    "radius_um",                    // the mean of the hot spot's radius
    "radius_p2",                    // its second and fourth mode over the mean
    "radius_p4",                    //
    "hot_spot_areal_density_gcm2",  //
    "shell_areal_density_gcm2",     //
    "shell_areal_density_p2",       // its second mode over the mean
    "hot_spot_mass_ug",             //
    "residual_energy",              // kinetic energy over that at the start
    "x_ray_energy_kj",              // that leaves the capsule, of the whole burn
    "alpha_energy_kj",              // put into the hot spot, of the whole burn
};

void simulate(const Capsule& capsule, const ProfileTable& table, std::span<double> scalars,
              std::span<float> images) {
  check(capsule);
  const Motion motion(capsule, {}, table);
  const Moment bang = motion.at(motion.bang_time());
  const Moment end = motion.at(motion.end());
  const auto radius = legendre_coefficients(bang.inner_radius);
  const auto column = legendre_coefficients(bang.shell_column);
  const double width = 2 * std::sqrt(2 * std::log(2.0)) * motion.burn_deviation();
  const double values[] = {std::log10(motion.neutrons()),
                           1e9 * motion.bang_time(),
                           1e12 * width,
                           motion.burn_kev(),
                           1e-14 * bang.pressure,
                           1e6 * radius[0],
                           radius[1] / radius[0],
                           radius[2] / radius[0],
                           0.1 * bang.hot_spot_column(),
                           0.1 * column[0],
                           column[1] / column[0],
                           1e9 * bang.hot_spot_mass,
                           bang.kinetic_energy / motion.at(0).kinetic_energy,
                           1e-3 * end.radiated_energy,
                           1e-3 * end.alpha_energy};
  static_assert(std::size(values) == kScalars);
  for (std::size_t k = 0; k < kScalars; ++k) scalars[k] = values[k];
  project(Outline(bang), Emission::of(bang), images);
}

}  // namespace implosion
