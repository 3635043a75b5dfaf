// SPDX-License-Identifier: Apache-2.0
// One universe: what defines it, and what is made of it.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
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

// The command line of wflow-cola.

// The universes to make, checked; nothing where the command line asked only for help or the version, which
// are printed then. Throws Error.
std::optional<std::vector<UniverseSpec>> parse_command_line(int argc, char** argv);

// The result of one universe as an HDF5 file:
//
//   /density   float32 [channel, x, y, z], density over mean (assign cic), or
//              uint16 [channel, x, y, z], particles a cell (assign ngp)
//   attributes of the root group: omega_m sigma_8 n_s h omega_b box_mpc_h (float64), redshifts (float64,
//              one a channel), seed index noise_seed (uint64), particles mesh cells steps (int32),
//              mean_particles (float64, particles a cell), assign, generator and version (strings)
//
// No time, host or path is stored: the same universe gives the same bytes.

// The bytes of the file, made in memory.
std::vector<unsigned char> density_file_image(const UniverseSpec& spec, const Cubes& cubes);

// Writes under a temporary name in the same folder, syncs, then renames: `path` holds all of `bytes` or what
// it held before. Makes missing folders. Throws Error (output); the temporary file is removed then.
void write_file_durably(const std::string& path, const std::vector<unsigned char>& bytes);

const char* version();

// Several universes of one process: a CSV file whose header names options.

// Sets one option by name, as it stands in a CSV header: `omega_m`, `omega-m` and `Omega_M` are all
// --omega-m. Throws Error (usage) on an unknown name or a value that is not a number.
void set_option(UniverseSpec& spec, const std::string& name, const std::string& value);

// One spec a row, each starting from `defaults`; checked. `name` is for messages, which give the line.
// Throws Error (input).
std::vector<UniverseSpec> read_rows(std::istream& file, const std::string& name,
                                    const UniverseSpec& defaults);

// Comma-separated numbers.
std::vector<double> parse_numbers(const std::string& text);

// "{index}" in `pattern` replaced.
std::string expand_output(const std::string& pattern, std::uint64_t index);

}  // namespace cola
