// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: each cell's value follows from (seed, cell) alone, so that neither the order
// of computation nor other universes of the same process can change it.
#pragma once

#include <cstdint>
#include <vector>

namespace cola {

// The seed of one universe's phases; independent of its parameters and of the order of tasks.
std::uint64_t universe_seed(std::uint64_t campaign_seed, std::uint64_t index);

// n^3 independent values of N(0, 1), x slowest and z fastest.
std::vector<float> white_noise(std::uint64_t seed, int n);

}  // namespace cola
