// SPDX-License-Identifier: Apache-2.0
#include "force_mesh.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cola {
namespace {

constexpr int kBlock = 16;  // columns a block: 128 bytes of each row, two cache lines

fftwf_complex* as_fftw(std::complex<float>* p) {
  return reinterpret_cast<fftwf_complex*>(p);
}

struct RowScratch {
  explicit RowScratch(int n) : dx(n), dy(n), dz(n) {}
  Buffer<float> dx, dy, dz;
};

// The neighbours at -2, -1, +1, +2.
struct Neighbours {
  const float *m2, *m1, *p1, *p2;
};

// Minus the gradient of one row, `z`, given the rows beside it. Two loops: the first is pure vector
// arithmetic, the second interleaves.
inline __attribute__((always_inline)) void differentiate_body(int n, const float* z, const Neighbours& x,
                                                              const Neighbours& y, RowScratch& scratch,
                                                              float* out) {
  constexpr float kNear = 2.0f / 3, kFar = 1.0f / 12;
  float *dx = scratch.dx.data(), *dy = scratch.dy.data(), *dz = scratch.dz.data();
  // The compiler gives up on proving eleven arrays apart.
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    dx[i] = kNear * (x.m1[i] - x.p1[i]) - kFar * (x.m2[i] - x.p2[i]);
    dy[i] = kNear * (y.m1[i] - y.p1[i]) - kFar * (y.m2[i] - y.p2[i]);
  }
  const auto along_z = [&](int m2, int m1, int p1, int p2) {
    return kNear * (z[m1] - z[p1]) - kFar * (z[m2] - z[p2]);
  };
#pragma GCC ivdep
  for (int i = 2; i < n - 2; ++i) dz[i] = along_z(i - 2, i - 1, i + 1, i + 2);
  for (const int i : {0, 1, n - 2, n - 1}) {
    dz[i] = along_z((i + n - 2) % n, (i + n - 1) % n, (i + 1) % n, (i + 2) % n);
  }
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) {
    out[3 * i] = dx[i];
    out[3 * i + 1] = dy[i];
    out[3 * i + 2] = dz[i];
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void differentiate_avx2(int n, const float* z, const Neighbours& x,
                                                        const Neighbours& y, RowScratch& scratch,
                                                        float* out) {
  differentiate_body(n, z, x, y, scratch, out);
}
#endif

void differentiate_row(int n, const float* z, const Neighbours& x, const Neighbours& y, RowScratch& scratch,
                       float* out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return differentiate_avx2(n, z, x, y, scratch, out);
#endif
  differentiate_body(n, z, x, y, scratch, out);
}

}  // namespace

ForceMesh::ForceMesh(int mesh)
    : mesh_(mesh),
      modes_(mesh / 2 + 1),
      density_(static_cast<std::size_t>(mesh) * mesh * density_row()),
      force_(static_cast<std::size_t>(mesh) * mesh * force_row() + 2),
      columns_(static_cast<std::size_t>(mesh) * kBlock),
      k2_of_column_(static_cast<std::size_t>(mesh) * modes_),
      k2_of_x_(static_cast<std::size_t>(mesh)) {
  const int n = mesh_;
  float* real = density_.data();
  auto* slab = reinterpret_cast<fftwf_complex*>(real);
  auto* block = as_fftw(columns_.data());
  // ESTIMATE: measured plans differ from run to run, and so would the output's last bits.
  const unsigned flags = FFTW_ESTIMATE;
  z_forward_ =
      fftwf_plan_many_dft_r2c(1, &n, n, real, nullptr, 1, 2 * modes_, slab, nullptr, 1, modes_, flags);
  z_inverse_ =
      fftwf_plan_many_dft_c2r(1, &n, n, slab, nullptr, 1, modes_, real, nullptr, 1, 2 * modes_, flags);
  const auto strided = [&](fftwf_complex* data, int count, int sign) {
    return fftwf_plan_many_dft(1, &n, count, data, nullptr, count, 1, data, nullptr, count, 1, sign, flags);
  };
  y_forward_ = strided(slab, modes_, FFTW_FORWARD);
  y_inverse_ = strided(slab, modes_, FFTW_BACKWARD);
  x_forward_ = strided(block, kBlock, FFTW_FORWARD);
  x_inverse_ = strided(block, kBlock, FFTW_BACKWARD);

  const auto squared = [n](int i) {
    const double k = 2 * std::numbers::pi / n * (i <= n / 2 ? i : i - n);
    return k * k;
  };
  for (int i = 0; i < n; ++i) {
    k2_of_x_[i] = static_cast<float>(squared(i));
    for (int z = 0; z < modes_; ++z) {
      k2_of_column_[static_cast<std::size_t>(i) * modes_ + z] = static_cast<float>(squared(i) + squared(z));
    }
  }
}

ForceMesh::~ForceMesh() {
  for (fftwf_plan plan : {z_forward_, z_inverse_, y_forward_, y_inverse_, x_forward_, x_inverse_}) {
    fftwf_destroy_plan(plan);
  }
}

void ForceMesh::clear_density() {
  std::fill(density_.begin(), density_.end(), 0.0f);
}

void ForceMesh::transform_slab(int x, bool forward) {
  float* real = density_.data() + static_cast<std::size_t>(x) * mesh_ * density_row();
  auto* slab = reinterpret_cast<fftwf_complex*>(real);
  if (forward) {
    fftwf_execute_dft_r2c(z_forward_, real, slab);
    fftwf_execute_dft(y_forward_, slab, slab);
  } else {
    fftwf_execute_dft(y_inverse_, slab, slab);
    fftwf_execute_dft_c2r(z_inverse_, slab, real);
  }
}

// Transform along x, times -1/k^2 over the transforms' norm, and back.
void ForceMesh::filter_columns() {
  auto* field = reinterpret_cast<std::complex<float>*>(density_.data());
  const std::size_t columns = static_cast<std::size_t>(mesh_) * modes_;
  const float scale = static_cast<float>(-1.0 / (static_cast<double>(mesh_) * mesh_ * mesh_));
  for (std::size_t first = 0; first < columns; first += kBlock) {
    const std::size_t count = std::min<std::size_t>(kBlock, columns - first);
    for (int x = 0; x < mesh_; ++x) {
      std::copy_n(field + x * columns + first, count, columns_.data() + x * kBlock);
    }
    fftwf_execute(x_forward_);
    auto* values = reinterpret_cast<float*>(columns_.data());
    for (int x = 0; x < mesh_; ++x) {
      for (std::size_t c = 0; c < count; ++c) {
        const float k2 = k2_of_x_[x] + k2_of_column_[first + c];
        const float factor = k2 > 0 ? scale / k2 : 0.0f;
        values[2 * (x * kBlock + c)] *= factor;
        values[2 * (x * kBlock + c) + 1] *= factor;
      }
    }
    fftwf_execute(x_inverse_);
    for (int x = 0; x < mesh_; ++x) {
      std::copy_n(columns_.data() + x * kBlock, count, field + x * columns + first);
    }
  }
}

void ForceMesh::differentiate() {
  const int n = mesh_;
  const auto row = [&](int x, int y) {
    return density_.data() + (static_cast<std::size_t>(x) * n + y) * density_row();
  };
  RowScratch scratch(n);
  for (int x = 0; x < n; ++x) {
    const int xm2 = (x + n - 2) % n, xm1 = (x + n - 1) % n, xp1 = (x + 1) % n, xp2 = (x + 2) % n;
    for (int y = 0; y < n; ++y) {
      const int ym2 = (y + n - 2) % n, ym1 = (y + n - 1) % n, yp1 = (y + 1) % n, yp2 = (y + 2) % n;
      float* out = force_.data() + (static_cast<std::size_t>(x) * n + y) * force_row();
      differentiate_row(n, row(x, y), {row(xm2, y), row(xm1, y), row(xp1, y), row(xp2, y)},
                        {row(x, ym2), row(x, ym1), row(x, yp1), row(x, yp2)}, scratch, out);
      std::copy_n(out, 3, out + 3 * n);
    }
  }
}

void ForceMesh::solve(double mean) {
  const float norm = static_cast<float>(1 / mean);
  for (int x = 0; x < mesh_; ++x) {
    for (int y = 0; y < mesh_; ++y) {
      float* row = density_.data() + (static_cast<std::size_t>(x) * mesh_ + y) * density_row();
      row[0] += row[mesh_];
      // delta, not the density: a smaller zero mode rounds less into the others.
      for (int z = 0; z < mesh_; ++z) row[z] = row[z] * norm - 1.0f;
    }
    transform_slab(x, true);
  }
  filter_columns();
  for (int x = 0; x < mesh_; ++x) transform_slab(x, false);
  differentiate();
}

}  // namespace cola
