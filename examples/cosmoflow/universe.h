// SPDX-License-Identifier: Apache-2.0
// One universe: what defines it, and what is made of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cosmology.h"
#include "simulation.h"

namespace cola {

enum class Assign {
  cic,  // density over mean, cloud in cell, float
  ngp,  // particles a cell, as CosmoFlow's histograms, 16 bit
};

struct UniverseSpec {
  Cosmology cosmology;
  std::uint64_t seed = 0;   // seed of the campaign
  std::uint64_t index = 0;  // number of the universe; its phases follow from seed and index
  double box = 128;         // Mpc/h
  int particles = 64;       // a side
  int mesh = 0;             // cells a side of the force mesh; 0 is twice the particles
  int cells = 32;           // cells a side of the density cube
  int steps = 10;
  std::vector<double> redshifts = {1, 0};  // the channels, in this order
  Assign assign = Assign::cic;
  std::string output;  // may have {index} in it

  int mesh_or_default() const { return mesh > 0 ? mesh : 2 * particles; }
};

// Throws Error (usage) with a sentence that names the option, its value and its range.
void check(const UniverseSpec& spec);

// All channels, one after the other, cells^3 values each, z fastest.
using Cubes = std::variant<std::vector<float>, std::vector<std::uint16_t>>;

// `simulation` must have the spec's particles and mesh.
Cubes make_universe(const UniverseSpec& spec, Simulation& simulation);

}  // namespace cola
