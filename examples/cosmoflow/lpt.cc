// SPDX-License-Identifier: Apache-2.0
#include "particles.h"

#include <fftw3.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <utility>

namespace cola {
namespace {

using Complex = std::complex<float>;

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;  // the increment of SplitMix64

// The output function of SplitMix64 (Steele, Lea & Flood 2014).
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double open_unit(std::uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

// Real-to-complex transforms of one cube, both ways, out of place.
class CubeTransform {
 public:
  explicit CubeTransform(int n)
      : real_(static_cast<std::size_t>(n) * n * n), modes_(static_cast<std::size_t>(n) * n * (n / 2 + 1)) {
    auto* modes = reinterpret_cast<fftwf_complex*>(modes_.data());
    forward_ = fftwf_plan_dft_r2c_3d(n, n, n, real_.data(), modes, FFTW_ESTIMATE);
    inverse_ = fftwf_plan_dft_c2r_3d(n, n, n, modes, real_.data(), FFTW_ESTIMATE);
  }
  ~CubeTransform() {
    fftwf_destroy_plan(forward_);
    fftwf_destroy_plan(inverse_);
  }
  CubeTransform(const CubeTransform&) = delete;
  CubeTransform& operator=(const CubeTransform&) = delete;

  Buffer<float>& real() { return real_; }
  Buffer<Complex>& modes() { return modes_; }
  void forward() { fftwf_execute(forward_); }
  void inverse() { fftwf_execute(inverse_); }  // destroys the modes; unnormalised

 private:
  Buffer<float> real_;
  Buffer<Complex> modes_;
  fftwf_plan forward_;
  fftwf_plan inverse_;
};

// Calls visit(index, ix, iy, iz) for each mode of the half-complex cube; i of -n/2 < i <= n/2.
template <typename Visit>
void for_each_mode(int n, const Visit& visit) {
  const auto wrapped = [n](int i) { return i <= n / 2 ? i : i - n; };
  std::size_t index = 0;
  for (int x = 0; x < n; ++x) {
    for (int y = 0; y < n; ++y) {
      for (int z = 0; z <= n / 2; ++z) visit(index++, wrapped(x), wrapped(y), z);
    }
  }
}

struct WaveNumbers {
  int n;
  float unit;  // 2 pi / box

  // A first derivative of the Nyquist mode has no real value on the lattice: taken as zero.
  float odd(int i) const { return 2 * i == n ? 0.0f : unit * static_cast<float>(i); }
  float even(int i) const { return unit * static_cast<float>(i); }
  float squared(int x, int y, int z) const { return unit * unit * static_cast<float>(x * x + y * y + z * z); }
};

// field_k -> displacement component i of sign * i k field_k / k^2, for the three components.
void displace(CubeTransform& fft, const Buffer<Complex>& field, const WaveNumbers& k, float sign,
              Buffer<Float4>& out) {
  for (int axis = 0; axis < 3; ++axis) {
    for_each_mode(k.n, [&](std::size_t index, int x, int y, int z) {
      const float k2 = k.squared(x, y, z);
      const int component[3] = {x, y, z};
      const float factor = k2 > 0 ? sign * k.odd(component[axis]) / k2 : 0.0f;
      fft.modes()[index] = Complex(-factor * field[index].imag(), factor * field[index].real());
    });
    fft.inverse();
    for (std::size_t i = 0; i < out.size(); ++i) out[i].v[axis] = fft.real()[i];
  }
}

// `field` are the modes of delta with delta(x) = sum over k of field_k e^{ikx}.
Displacements displacements_of_modes(CubeTransform& fft, Buffer<Complex>& field, int n, double box) {
  const WaveNumbers k{n, static_cast<float>(2 * std::numbers::pi / box)};
  const std::size_t size = fft.real().size();
  Displacements result{n, Buffer<Float4>(size), Buffer<Float4>(size)};
  displace(fft, field, k, 1.0f, result.first);

  // Source of the second order: the sum over i < j of phi_ii phi_jj - phi_ij^2.
  const auto second_derivative = [&](int i, int j) {
    for_each_mode(n, [&](std::size_t index, int x, int y, int z) {
      const float k2 = k.squared(x, y, z);
      const int component[3] = {x, y, z};
      const float product =
          i == j ? k.even(component[i]) * k.even(component[i]) : k.odd(component[i]) * k.odd(component[j]);
      fft.modes()[index] = k2 > 0 ? field[index] * (product / k2) : Complex(0);
    });
    fft.inverse();
  };
  Buffer<float> source(size), xx(size), yy(size);
  second_derivative(0, 0);
  xx = fft.real();
  second_derivative(1, 1);
  yy = fft.real();
  second_derivative(2, 2);
  for (std::size_t i = 0; i < size; ++i) {
    const float zz = fft.real()[i];
    source[i] = xx[i] * yy[i] + xx[i] * zz + yy[i] * zz;
  }
  for (const auto& [i, j] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 2}}) {
    second_derivative(i, j);
    for (std::size_t c = 0; c < size; ++c) source[c] -= fft.real()[c] * fft.real()[c];
  }
  fft.real() = source;
  fft.forward();
  const float scale = 1.0f / static_cast<float>(size);
  for (std::size_t i = 0; i < field.size(); ++i) field[i] = fft.modes()[i] * scale;
  displace(fft, field, k, -1.0f, result.second);
  return result;
}

}  // namespace

std::uint64_t universe_seed(std::uint64_t campaign_seed, std::uint64_t index) {
  return mix(mix(campaign_seed + kGolden) + (index + 1) * kGolden);
}

std::vector<float> white_noise(std::uint64_t seed, int n) {
  const std::size_t size = static_cast<std::size_t>(n) * n * n;
  const std::uint64_t base = mix(seed);
  std::vector<float> noise(size);
  // Box-Muller gives two values a draw: cells 2i and 2i + 1 share one.
  for (std::size_t i = 0; i < size; i += 2) {
    const double u = open_unit(mix(base + (i + 1) * kGolden));
    const double v = open_unit(mix(base + (i + 2) * kGolden));
    const double radius = std::sqrt(-2 * std::log(u));
    const double angle = 2 * std::numbers::pi * v;
    noise[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < size) noise[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return noise;
}

Displacements make_displacements(const std::vector<float>& noise, int n, double box, const LinearPower& power,
                                 Amplitude amplitude) {
  CubeTransform fft(n);
  std::copy(noise.begin(), noise.end(), fft.real().begin());
  fft.forward();

  // Few distinct values of k^2 occur, and the spectrum is dear: look it up.
  const double unit = 2 * std::numbers::pi / box;
  const double cells = static_cast<double>(n) * n * n;
  std::vector<float> root_power(static_cast<std::size_t>(3 * (n / 2) * (n / 2) + 1), -1.0f);
  Buffer<Complex> field(fft.modes().size());
  for_each_mode(n, [&](std::size_t index, int x, int y, int z) {
    const int squared = x * x + y * y + z * z;
    float& root = root_power[static_cast<std::size_t>(squared)];
    if (root < 0) {
      // sqrt(P n^3 / V) for the noise's modes, over n^3 for the convention of displacements_of_modes.
      root =
          static_cast<float>(std::sqrt(power(unit * std::sqrt(squared)) * cells / (box * box * box)) / cells);
    }
    Complex mode = fft.modes()[index];
    if (amplitude == Amplitude::fixed) {
      const float length = std::abs(mode);
      mode *= length > 0 ? static_cast<float>(std::sqrt(cells)) / length : 0.0f;
    }
    field[index] = mode * root;
  });
  return displacements_of_modes(fft, field, n, box);
}

Displacements displacements_of_density(const std::vector<float>& delta, int n, double box) {
  CubeTransform fft(n);
  std::copy(delta.begin(), delta.end(), fft.real().begin());
  fft.forward();
  Buffer<Complex> field = fft.modes();
  for (Complex& mode : field) mode /= static_cast<float>(delta.size());
  field[0] = 0;
  return displacements_of_modes(fft, field, n, box);
}

}  // namespace cola
