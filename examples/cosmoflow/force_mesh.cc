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

}  // namespace

ForceMesh::ForceMesh(int mesh)
    : mesh_(mesh),
      modes_(mesh / 2 + 1),
      density_(static_cast<std::size_t>(mesh) * mesh * density_row()),
      force_(static_cast<std::size_t>(mesh) * mesh * force_row()),
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
  constexpr float kNear = 2.0f / 3, kFar = 1.0f / 12;
  Buffer<float> padded(static_cast<std::size_t>(n) + 4), dx(n), dy(n), dz(n);
  for (int x = 0; x < n; ++x) {
    const int xm2 = (x + n - 2) % n, xm1 = (x + n - 1) % n, xp1 = (x + 1) % n, xp2 = (x + 2) % n;
    for (int y = 0; y < n; ++y) {
      const int ym2 = (y + n - 2) % n, ym1 = (y + n - 1) % n, yp1 = (y + 1) % n, yp2 = (y + 2) % n;
      const float *a = row(xm2, y), *b = row(xm1, y), *c = row(xp1, y), *d = row(xp2, y);
      const float *e = row(x, ym2), *f = row(x, ym1), *g = row(x, yp1), *h = row(x, yp2);
      const float* centre = row(x, y);
      std::copy_n(centre, n, padded.data() + 2);
      padded[0] = centre[n - 2], padded[1] = centre[n - 1];
      padded[n + 2] = centre[0], padded[n + 3] = centre[1];
      const float* p = padded.data() + 2;
      Float4* out = force_.data() + (static_cast<std::size_t>(x) * n + y) * force_row();
      // Two loops: the first is pure vector arithmetic, the second interleaves.
      for (int z = 0; z < n; ++z) {
        dx[z] = kNear * (b[z] - c[z]) - kFar * (a[z] - d[z]);
        dy[z] = kNear * (f[z] - g[z]) - kFar * (e[z] - h[z]);
        dz[z] = kNear * (p[z - 1] - p[z + 1]) - kFar * (p[z - 2] - p[z + 2]);
      }
      for (int z = 0; z < n; ++z) {
        out[z].v[0] = dx[z];
        out[z].v[1] = dy[z];
        out[z].v[2] = dz[z];
        out[z].v[3] = 0;
      }
      out[n] = out[0];
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
