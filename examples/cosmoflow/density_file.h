// SPDX-License-Identifier: Apache-2.0
// The result of one universe as an HDF5 file:
//
//   /density   float32 [channel, x, y, z], density over mean (assign cic), or
//              uint16 [channel, x, y, z], particles a cell (assign ngp)
//   attributes of the root group: omega_m sigma_8 n_s h omega_b box_mpc_h (float64), redshifts (float64, one
//   a
//              channel), seed index noise_seed (uint64), particles mesh cells steps (int32), mean_particles
//              (float64, particles a cell), assign, generator and version (strings)
//
// No time, host or path is stored: the same universe gives the same bytes.
#pragma once

#include <string>
#include <vector>

#include "universe.h"

namespace cola {

// The bytes of the file, made in memory.
std::vector<unsigned char> density_file_image(const UniverseSpec& spec, const Cubes& cubes);

// Writes under a temporary name in the same folder, syncs, then renames: `path` holds all of `bytes` or what
// it held before. Makes missing folders. Throws Error (output); the temporary file is removed then.
void write_file_durably(const std::string& path, const std::vector<unsigned char>& bytes);

const char* version();

}  // namespace cola
