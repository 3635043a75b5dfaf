// SPDX-License-Identifier: Apache-2.0
// COLA: particle-mesh steps in the frame that moves with 2LPT (Tassev, Zaldarriaga & Eisenstein 2013,
// arXiv:1301.0322). Velocities are residual: T[x - x_LPT].
#pragma once

#include <functional>
#include <span>

#include "cosmology.h"
#include "force_mesh.h"
#include "particles.h"

namespace cola {

enum class Scheme {
  cola,      // modified kick and drift operators, n = -2.5
  standard,  // COLA's frame with the standard operators
  plain_pm,  // no moving frame: the targets that COLA's few steps are checked against
};

struct StepPlan {
  int steps = 10;
  double start_a = 0.1;
  Scheme scheme = Scheme::cola;
};

// Reusable over universes: holds the mesh and the plans. One thread; not thread-safe.
class Simulation {
 public:
  Simulation(int particles_a_side, int mesh);

  // The state at a snapshot: particles, and the drift that takes them to the snapshot's time.
  struct View {
    std::span<const Particle> particles;
    StepFactors drift;
  };
  using Snapshot = std::function<void(std::size_t which, const View&)>;

  // Evolves to the last of `scale_factors` (each in [start_a, 1], any order) and calls `snapshot` once for
  // each, in order of time. The trajectory does not depend on which snapshots are asked for.
  void run(const Cosmology& cosmology, const Displacements& displacements, double box, const StepPlan& plan,
           std::span<const double> scale_factors, const Snapshot& snapshot);

  // Results of the last run, in the order of the lattice.
  std::span<const Particle> particles() const { return particles_; }
  int particles_a_side() const { return side_; }
  int mesh() const { return mesh_.mesh(); }

 private:
  void place(const Displacements& displacements, double box, const Growth& growth, const StepPlan& plan);

  int side_;
  ForceMesh mesh_;
  Buffer<Particle> particles_;
};

}  // namespace cola
