// SPDX-License-Identifier: Apache-2.0
// The particle mesh: density in, acceleration out. All in units of mesh cells.
#pragma once

#include <fftw3.h>

#include <complex>
#include <cstddef>

#include "buffer.h"

namespace cola {

// Solves lap(phi) = delta on a periodic mesh with -1/k^2, and differentiates phi with the 4-point stencil
// 2/3 (p+1 - p-1) - 1/12 (p+2 - p-2). The stencil takes one inverse transform where a gradient in k space
// takes three, and damps the particle lattice's own noise, which that one amplifies at mesh = 2 x particles.
//
// The transform is done in three passes over memory, not FFTW's six: z and y within one slab while it is in
// cache, then x, the multiplication and x back in blocks of columns.
class ForceMesh {
 public:
  explicit ForceMesh(int mesh);  // even, at least 8
  ~ForceMesh();
  ForceMesh(const ForceMesh&) = delete;
  ForceMesh& operator=(const ForceMesh&) = delete;

  int mesh() const { return mesh_; }
  std::size_t density_row() const { return static_cast<std::size_t>(mesh_) + 2; }      // floats a z row
  std::size_t force_row() const { return 3 * (static_cast<std::size_t>(mesh_) + 1); }  // floats a z row

  // mesh x mesh rows of density_row(); particles add their weights. Index `mesh` of a row is a ghost of index
  // 0, so that a deposit never wraps in z.
  float* density() { return density_.data(); }
  void clear_density();

  // From the deposited weights (`mean` a cell) to minus the gradient of phi; destroys the density.
  void solve(double mean);

  // mesh x mesh rows of force_row(): x, y and z component of each cell, not four floats, since the passes
  // over this array are bound by memory. Cell `mesh` repeats cell 0. Two floats past the last row may be
  // read.
  const float* force() const { return force_.data(); }

 private:
  void transform_slab(int x, bool forward);
  void filter_columns();
  void differentiate();

  int mesh_;
  int modes_;  // complex values a z row
  Buffer<float> density_;
  Buffer<float> force_;
  Buffer<std::complex<float>> columns_;
  Buffer<float> k2_of_column_;
  Buffer<float> k2_of_x_;
  fftwf_plan z_forward_, z_inverse_, y_forward_, y_inverse_, x_forward_, x_inverse_;
};

}  // namespace cola
