// SPDX-License-Identifier: Apache-2.0
#include "power_spectrum.h"

namespace cola {

ModeMeter::ModeMeter(int nx, int ny, int nz)
    : nx_(nx),
      ny_(ny),
      nz_(nz),
      field_(static_cast<std::size_t>(nx) * ny * nz),
      modes_(static_cast<std::size_t>(nx) * ny * (nz / 2 + 1)) {
  plan_ = fftwf_plan_dft_r2c_3d(nx, ny, nz, field_.data(), reinterpret_cast<fftwf_complex*>(modes_.data()),
                                FFTW_ESTIMATE);
}

ModeMeter::~ModeMeter() {
  fftwf_destroy_plan(plan_);
}

void ModeMeter::transform() {
  fftwf_execute(plan_);
}

}  // namespace cola
