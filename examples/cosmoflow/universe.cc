// SPDX-License-Identifier: Apache-2.0
#include "universe.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "cosmology.h"
#include "particles.h"

namespace cola {
namespace {

constexpr double kStartA = 0.1;

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

void require(bool good, const char* option, double value, const char* expected) {
  if (good) return;
  throw Error(ExitCode::usage,
              std::string(option) + " is " + shown(value) + ", but must be " + expected + ".");
}

}  // namespace

void check(const UniverseSpec& spec) {
  const Cosmology& c = spec.cosmology;
  // Written so that a NaN fails too.
  require(c.omega_m >= 0.05 && c.omega_m <= 1, "--omega-m", c.omega_m, "from 0.05 to 1");
  require(c.sigma_8 >= 0.05 && c.sigma_8 <= 3, "--sigma8", c.sigma_8, "from 0.05 to 3");
  require(c.n_s >= 0 && c.n_s <= 2, "--n-s", c.n_s, "from 0 to 2");
  require(c.h >= 0.3 && c.h <= 1.5, "--h", c.h, "from 0.3 to 1.5");
  require(c.omega_b >= 1e-4 && c.omega_b < c.omega_m, "--omega-b", c.omega_b,
          "at least 0.0001 and below --omega-m");
  require(spec.box >= 1 && spec.box <= 1e5, "--box", spec.box, "from 1 to 100000 Mpc/h");
  require(spec.particles >= 8 && spec.particles <= 1024 && spec.particles % 2 == 0, "--particles",
          spec.particles, "an even number from 8 to 1024");
  const int mesh = spec.mesh_or_default();
  require(mesh >= 8 && mesh <= 2048 && mesh % 2 == 0, "--mesh", mesh, "an even number from 8 to 2048");
  require(spec.cells >= 1 && spec.cells <= 1024, "--cells", spec.cells, "from 1 to 1024");
  require(spec.steps >= 1 && spec.steps <= 10000, "--steps", spec.steps, "from 1 to 10000");
  if (spec.redshifts.empty())
    throw Error(ExitCode::usage, "--redshifts is empty; give at least one, as in 1,0.");
  for (double z : spec.redshifts)
    require(z >= 0 && z <= 9, "--redshifts", z, "from 0 to 9, where the run starts");
}

Cubes make_universe(const UniverseSpec& spec, Simulation& simulation) {
  const auto noise = white_noise(universe_seed(spec.seed, spec.index), spec.particles);
  const auto displacements = make_displacements(noise, spec.particles, spec.box, LinearPower(spec.cosmology));
  std::vector<double> scale_factors;
  for (double z : spec.redshifts) scale_factors.push_back(1 / (1 + z));
  const OutputGrid grid{simulation.mesh(), spec.particles, spec.cells};
  const std::size_t cube = static_cast<std::size_t>(spec.cells) * spec.cells * spec.cells;
  const StepPlan plan{spec.steps, kStartA, Scheme::cola};

  if (spec.assign == Assign::cic) {
    std::vector<float> density(cube * scale_factors.size());
    const auto scale = static_cast<float>(static_cast<double>(cube) / std::pow(spec.particles, 3));
    simulation.run(spec.cosmology, displacements, spec.box, plan, scale_factors,
                   [&](std::size_t which, const Simulation::View& view) {
                     const std::span<float> channel(density.data() + which * cube, cube);
                     deposit_output(view.particles, view.drift, grid, channel);
                     for (float& value : channel) value *= scale;
                   });
    return density;
  }
  std::vector<std::uint16_t> counts(cube * scale_factors.size());
  simulation.run(spec.cosmology, displacements, spec.box, plan, scale_factors,
                 [&](std::size_t which, const Simulation::View& view) {
                   std::vector<std::uint32_t> channel(cube);
                   count_output(view.particles, view.drift, grid, channel);
                   for (std::size_t i = 0; i < cube; ++i) {
                     if (channel[i] > std::numeric_limits<std::uint16_t>::max()) {
                       throw Error(ExitCode::failed,
                                   "a cell holds " + std::to_string(channel[i]) +
                                       " particles, more than 16 bits count; use --assign cic "
                                       "or more --cells.");
                     }
                     counts[which * cube + i] = static_cast<std::uint16_t>(channel[i]);
                   }
                 });
  return counts;
}

}  // namespace cola
