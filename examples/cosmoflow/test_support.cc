// SPDX-License-Identifier: Apache-2.0
#include "test_support.h"

namespace cola::testing {

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

std::vector<float> density_of(const Simulation::View& view, int mesh, int particles) {
  std::vector<float> density(static_cast<std::size_t>(mesh) * mesh * mesh);
  deposit_output(view.particles, view.drift, {mesh, particles, mesh}, density);
  const float norm = static_cast<float>(std::pow(static_cast<double>(mesh) / particles, 3));
  for (float& value : density) value = value * norm - 1;
  return density;
}

double Halofit::operator()(double k, double linear) const {
  const double n = slope_, c = curvature_;
  const double n2 = n * n, n3 = n2 * n, n4 = n3 * n;
  const double a_n = std::pow(10, 1.5222 + 2.8553 * n + 2.3706 * n2 + 0.9903 * n3 + 0.2250 * n4 - 0.6038 * c);
  const double b_n = std::pow(10, -0.5642 + 0.5864 * n + 0.5716 * n2 - 1.5474 * c);
  const double c_n = std::pow(10, 0.3698 + 2.0404 * n + 0.8161 * n2 + 0.5869 * c);
  const double gamma = 0.1971 - 0.0843 * n + 0.8460 * c;
  const double alpha = std::abs(6.0835 + 1.3373 * n - 0.1959 * n2 - 5.5274 * c);
  const double beta = 2.0379 - 0.7354 * n + 0.3157 * n2 + 1.2490 * n3 + 0.3980 * n4 - 0.1682 * c;
  const double nu = std::pow(10, 5.2105 + 3.6902 * n);
  const double f1 = std::pow(omega_m_, -0.0307), f2 = std::pow(omega_m_, -0.0585),
               f3 = std::pow(omega_m_, 0.0743);
  const double y = k / k_sigma_;
  const double to_delta2 = k * k * k / (2 * std::numbers::pi * std::numbers::pi);
  const double l = linear * to_delta2;
  const double two_halo = l * std::pow(1 + l, beta) / (1 + alpha * l) * std::exp(-y / 4 - y * y / 8);
  const double one_halo = a_n * std::pow(y, 3 * f1) /
                          (1 + b_n * std::pow(y, f2) + std::pow(c_n * f3 * y, 3 - gamma)) /
                          (1 + nu / (y * y));
  return (two_halo + one_halo) / to_delta2;
}

}  // namespace cola::testing
