// SPDX-License-Identifier: Apache-2.0
// Measured power spectra of density cubes, for the tests.
#pragma once

#include <fftw3.h>

#include <complex>
#include <cstddef>
#include <vector>

#include "buffer.h"

namespace cola {

// Fourier transforms of real boxes of one shape (x slowest).
class ModeMeter {
 public:
  ModeMeter(int nx, int ny, int nz);
  ~ModeMeter();
  ModeMeter(const ModeMeter&) = delete;
  ModeMeter& operator=(const ModeMeter&) = delete;

  Buffer<float>& field() { return field_; }  // to be filled before transform()
  void transform();

  // Calls visit(i, j, l, weight, mode) for each independent mode, zero mode included: wave numbers in units
  // of 2 pi over each side, the weight that counts its conjugate, and the value over the number of cells.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    std::size_t index = 0;
    const float norm = 1.0f / static_cast<float>(field_.size());
    for (int x = 0; x < nx_; ++x) {
      for (int y = 0; y < ny_; ++y) {
        for (int z = 0; z <= nz_ / 2; ++z) {
          const double weight = z == 0 || 2 * z == nz_ ? 1 : 2;
          visit(x <= nx_ / 2 ? x : x - nx_, y <= ny_ / 2 ? y : y - ny_, z, weight, modes_[index++] * norm);
        }
      }
    }
  }

 private:
  int nx_, ny_, nz_;
  Buffer<float> field_;
  Buffer<std::complex<float>> modes_;
  fftwf_plan plan_;
};

}  // namespace cola
