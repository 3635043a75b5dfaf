// SPDX-License-Identifier: Apache-2.0
#include "particles.h"

#include <cmath>
#include <cstring>

namespace cola {
namespace {

// Vector extensions of GCC and Clang: portable, and the same arithmetic in the same order on every processor.
using Vec4 = float __attribute__((vector_size(16)));
using Vec8 = float __attribute__((vector_size(32)));
using Int4 = std::int32_t __attribute__((vector_size(16)));

constexpr std::size_t kAhead = 24;  // particles

#define COLA_INLINE inline __attribute__((always_inline))

COLA_INLINE Vec4 load(const Float4& from) {
  Vec4 r;
  std::memcpy(&r, from.v, sizeof r);
  return r;
}

COLA_INLINE void store(Float4& to, Vec4 value) {
  std::memcpy(to.v, &value, sizeof value);
}

COLA_INLINE Vec4 all(float value) {
  return Vec4{value, value, value, value};
}

// Into [0, size). A displacement may be several boxes long; and x - size * floor(x / size) may round to size.
COLA_INLINE Vec4 wrap(Vec4 x, float size) {
  const Vec4 quotient = x * all(1.0f / size);
  const Vec4 truncated = __builtin_convertvector(__builtin_convertvector(quotient, Int4), Vec4);
  const Vec4 floored = truncated > quotient ? truncated - 1.0f : truncated;
  x = x - floored * size;
  x = x < 0.0f ? x + size : x;
  return x >= size ? all(0.0f) : x;
}

COLA_INLINE Vec4 drifted(const Particle& p, Vec4 velocity, const StepFactors& f, float size) {
  return wrap(load(p.position) + f.drift_velocity * velocity + f.drift_first * load(p.first) +
                  f.drift_second * load(p.second),
              size);
}

// Where a position lies in a mesh: the four z rows around it, and its weights.
struct Corner {
  std::size_t row[4];  // of (x, y), (x, y+1), (x+1, y), (x+1, y+1)
  float weight[4];
  int z;
  float upper, lower;  // weights of z + 1 and z
};

COLA_INLINE Corner corner(Vec4 x, int mesh) {
  const Int4 cell = __builtin_convertvector(x, Int4);
  const Vec4 t = x - __builtin_convertvector(cell, Vec4);
  const Vec4 s = 1.0f - t;
  const std::size_t x0 = static_cast<std::size_t>(cell[0]) * mesh;
  const std::size_t x1 = cell[0] + 1 == mesh ? 0 : x0 + mesh;
  const std::size_t y0 = cell[1];
  const std::size_t y1 = cell[1] + 1 == mesh ? 0 : y0 + 1;
  return {{x0 + y0, x0 + y1, x1 + y0, x1 + y1},
          {s[0] * s[1], s[0] * t[1], t[0] * s[1], t[0] * t[1]},
          cell[2],
          t[2],
          s[2]};
}

COLA_INLINE void add(const Corner& c, float* density, std::size_t row_length) {
  for (int i = 0; i < 4; ++i) {
    float* at = density + c.row[i] * row_length + c.z;
    at[0] += c.weight[i] * c.lower;
    at[1] += c.weight[i] * c.upper;
  }
}

// The three components of cells z and z + 1 are six neighbouring floats, read as one vector of eight.
COLA_INLINE Vec4 gather(const Corner& c, const float* force, std::size_t row_length) {
  const Vec8 along_z = {c.lower, c.lower, c.lower, c.upper, c.upper, c.upper, 0, 0};
  Vec8 sum = {};
  for (int i = 0; i < 4; ++i) {
    Vec8 pair;
    std::memcpy(&pair, force + c.row[i] * row_length + 3 * c.z, sizeof pair);
    sum += c.weight[i] * pair;
  }
  sum *= along_z;
  return Vec4{sum[0] + sum[3], sum[1] + sum[4], sum[2] + sum[5], 0};
}

// The mesh is larger than the second-level cache, and where a particle has gone is no pattern that the
// processor could foresee: ask early for the rows it will read, and for those near which it will deposit.
COLA_INLINE void prefetch(const Particle& p, const float* force, const float* density, int mesh) {
  const Corner c = corner(load(p.position), mesh);
  const std::size_t force_row = 3 * (static_cast<std::size_t>(mesh) + 1),
                    density_row = static_cast<std::size_t>(mesh) + 2;
  for (const std::size_t row : c.row) {
    __builtin_prefetch(force + row * force_row + 3 * c.z);
    if (density != nullptr) __builtin_prefetch(density + row * density_row + c.z, 1);
  }
}

COLA_INLINE void step_body(std::span<Particle> particles, const float* force, float* density, int mesh,
                           const StepFactors& f) {
  const std::size_t force_row = 3 * (static_cast<std::size_t>(mesh) + 1),
                    density_row = static_cast<std::size_t>(mesh) + 2;
  const auto size = static_cast<float>(mesh);
  for (std::size_t i = 0; i < particles.size(); ++i) {
    Particle& p = particles[i];
    if (i + kAhead < particles.size()) prefetch(particles[i + kAhead], force, density, mesh);
    const Vec4 pull = gather(corner(load(p.position), mesh), force, force_row);
    const Vec4 velocity = load(p.velocity) + f.kick_force * pull + f.kick_first * load(p.first) +
                          f.kick_second * load(p.second);
    const Vec4 position = drifted(p, velocity, f, size);
    store(p.velocity, velocity);
    store(p.position, position);
    if (density != nullptr) add(corner(position, mesh), density, density_row);
  }
}

// The corner of the output grid lies half a particle spacing below the first lattice point.
COLA_INLINE Vec4 output_position(const Particle& p, const StepFactors& f, const OutputGrid& grid) {
  const Vec4 x = drifted(p, load(p.velocity), f, static_cast<float>(grid.mesh));
  const float scale = static_cast<float>(grid.cells) / static_cast<float>(grid.mesh);
  const float offset = 0.5f * static_cast<float>(grid.cells) / static_cast<float>(grid.particles);
  return x * scale + offset;
}

#if defined(__x86_64__)
// The same source for processors with AVX2. No fused multiply-add (-ffp-contract=off), so the bits do not
// depend on which of the two ran.
__attribute__((target("avx2"))) void step_avx2(std::span<Particle> particles, const float* force,
                                               float* density, int mesh, const StepFactors& f) {
  step_body(particles, force, density, mesh, f);
}
#endif

}  // namespace

void step_particles(std::span<Particle> particles, const float* force, float* density, int mesh,
                    const StepFactors& factors) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return step_avx2(particles, force, density, mesh, factors);
#endif
  step_body(particles, force, density, mesh, factors);
}

void deposit(std::span<const Particle> particles, float* density, int mesh) {
  for (const Particle& p : particles) {
    add(corner(load(p.position), mesh), density, static_cast<std::size_t>(mesh) + 2);
  }
}

void deposit_output(std::span<const Particle> particles, const StepFactors& factors, const OutputGrid& grid,
                    std::span<float> cube) {
  const int n = grid.cells;
  for (const Particle& p : particles) {
    const Corner c = corner(wrap(output_position(p, factors, grid) - 0.5f, static_cast<float>(n)), n);
    const int above = c.z + 1 == n ? 0 : c.z + 1;
    for (int i = 0; i < 4; ++i) {
      cube[c.row[i] * n + c.z] += c.weight[i] * c.lower;
      cube[c.row[i] * n + above] += c.weight[i] * c.upper;
    }
  }
}

void count_output(std::span<const Particle> particles, const StepFactors& factors, const OutputGrid& grid,
                  std::span<std::uint32_t> cube) {
  const std::size_t n = grid.cells;
  for (const Particle& p : particles) {
    const Int4 cell =
        __builtin_convertvector(wrap(output_position(p, factors, grid), static_cast<float>(n)), Int4);
    ++cube[(cell[0] * n + cell[1]) * n + cell[2]];
  }
}

}  // namespace cola
