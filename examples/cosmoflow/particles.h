// SPDX-License-Identifier: Apache-2.0
// The loops over particles: nearly all time that is not spent in Fourier transforms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "buffer.h"
#include "cosmology.h"

namespace cola {

// One cache line. Units of mesh cells; positions in [0, mesh).
struct alignas(64) Particle {
  Float4 position;
  Float4 velocity;  // see StepFactors
  Float4 first;     // displacements of Displacements, in mesh cells
  Float4 second;
};
static_assert(sizeof(Particle) == 64);

// Kick, then drift:
//   velocity += kick_force * force + kick_first * first + kick_second * second
//   position += drift_velocity * velocity + drift_first * first + drift_second * second, wrapped.
struct StepFactors {
  float kick_force = 0, kick_first = 0, kick_second = 0;
  float drift_velocity = 0, drift_first = 0, drift_second = 0;
};

// Interpolates the force (cloud in cell), kicks, drifts and, where `density` is given, deposits at the new
// position, in one pass. Layouts of `force` and `density` are those of ForceMesh.
void step_particles(std::span<Particle> particles, const float* force, float* density, int mesh,
                    const StepFactors& factors);

// Deposit alone, for the first step.
void deposit(std::span<const Particle> particles, float* density, int mesh);

// The grid of a density cube. Its corner lies half a particle spacing below the first lattice point, so that
// cells and lattice are symmetric about each other for any ratio of the two.
struct OutputGrid {
  int mesh = 0;
  int particles = 0;  // a side
  int cells = 0;      // a side
};

// Both take positions as step_particles would drift them by `factors`, and leave the particles as they are.
// Cloud in cell about the cell centres; `cube` has cells^3 values, z fastest, and is added to.
void deposit_output(std::span<const Particle> particles, const StepFactors& factors, const OutputGrid& grid,
                    std::span<float> cube);

// Particles within each cell.
void count_output(std::span<const Particle> particles, const StepFactors& factors, const OutputGrid& grid,
                  std::span<std::uint32_t> cube);

// Initial conditions. Phases: counter-based random numbers, each cell's value follows from (seed, cell)
// alone, so that neither the order of computation nor other universes of the same process can change it.
// Displacements: first and second order Lagrangian perturbation theory (Scoccimarro 1998, appendix D; Tassev,
// Zaldarriaga & Eisenstein 2013).

// The seed of one universe's phases; independent of its parameters and of the order of tasks.
std::uint64_t universe_seed(std::uint64_t campaign_seed, std::uint64_t index);

// n^3 independent values of N(0, 1), x slowest and z fastest.
std::vector<float> white_noise(std::uint64_t seed, int n);

// Position of the particle of lattice point q at scale factor a: q + D1(a) first + D2(a) second, with D2 < 0.
// Mpc/h, normalised to z = 0; indexed (x * n + y) * n + z.
struct Displacements {
  int n = 0;
  Buffer<Float4> first;
  Buffer<Float4> second;
};

enum class Amplitude {
  gaussian,  // modes as the noise has them
  fixed,     // every mode has exactly the mean power, only its phase is random: for validation, since it
             // removes the variance of the few modes at low k
};

// `noise` is n^3 values of N(0, 1); `box` in Mpc/h.
Displacements make_displacements(const std::vector<float>& noise, int n, double box, const LinearPower& power,
                                 Amplitude amplitude = Amplitude::gaussian);

// The same from a given linear density contrast at z = 0 on the lattice.
Displacements displacements_of_density(const std::vector<float>& delta, int n, double box);

}  // namespace cola
