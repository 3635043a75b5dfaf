// SPDX-License-Identifier: Apache-2.0
// One capsule: its motion, what detectors measure, and its images at the moment of most neutrons.
#pragma once

#include <array>
#include <span>

#include "dynamics.h"
#include "hot_spot.h"
#include "images.h"

namespace implosion {

constexpr int kScalars = 15;
// The scalars in their order, with units where they have one.
extern const std::array<const char*, kScalars> kScalarNames;

// Throws std::invalid_argument for a capsule outside of the model, std::runtime_error if it has no solution.
void simulate(const Capsule& capsule, const ProfileTable& table, std::span<double> scalars,
              std::span<float> images);

}  // namespace implosion
