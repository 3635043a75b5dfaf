// SPDX-License-Identifier: Apache-2.0
// Initial conditions. Phases: counter-based random numbers, each cell's value follows from (seed, cell)
// alone, so that neither the order of computation nor other universes of the same process can change it.
// Displacements: first and second order Lagrangian perturbation theory (Scoccimarro 1998, appendix D; Tassev,
// Zaldarriaga & Eisenstein 2013).
#pragma once

#include <cstdint>
#include <vector>

#include "buffer.h"
#include "cosmology.h"

namespace cola {

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
