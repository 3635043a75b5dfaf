// SPDX-License-Identifier: Apache-2.0
// The loops over particles: nearly all time that is not spent in Fourier transforms.
#pragma once

#include <cstdint>
#include <span>

#include "buffer.h"

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

}  // namespace cola
