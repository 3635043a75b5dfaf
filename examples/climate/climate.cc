// SPDX-License-Identifier: Apache-2.0
// Synthetic weather with labelled events, for the segmentation of extreme weather: 16 channels on a grid of
// 96 latitudes and 144 longitudes, and for every cell its class: 0 background, 1 tropical cyclone (about 0.1
// % of the cells), 2 atmospheric river (about 1.7 %). The names of the channels are those of the data set of
// Kurth et al. (2018), "Exascale deep learning for climate analytics".
//
// The background is a sum of waves with random phases and a red spectrum, on profiles over latitude. A
// cyclone is a warm, moist low with a vortex; a river is a narrow filament of moisture and wind that leaves
// the tropics. Both have decoys without a label: lows of middle latitudes that are cold, and moist patches
// that are round. A sample is a function of its parameters and nothing else.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <vector>

#include "wflow_plugin.h"

namespace {

constexpr int kRows = 96;      // latitudes, from south to north
constexpr int kColumns = 144;  // longitudes; the grid is periodic along them
constexpr int kCells = kRows * kColumns;
constexpr double kDegree = 180.0 / kRows;  // degrees of latitude in a row

enum Channel {
  TMQ,
  U850,
  V850,
  UBOT,
  VBOT,
  QREFHT,
  PS,
  PSL,
  T200,
  T500,
  PRECT,
  TS,
  TREFHT,
  Z1000,
  Z200,
  ZBOT,
  kChannels
};
enum Class { background, cyclone, river };

using Field = std::vector<double>;

double latitude(double row) {
  return (row + 0.5) * kDegree - 90;
}

// SplitMix64's finaliser (Steele, Lea, Flood 2014): number i of a stream depends on its key and i alone.
std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t key) : state_(mix64(key + 0x9e3779b97f4a7c15ULL)) {}
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(next() >> 11) * 0x1.0p-53;
  }
  double normal() {  // Box and Muller (1958)
    const double radius = std::sqrt(-2 * std::log(uniform(0x1.0p-53, 1)));
    return radius * std::cos(2 * std::numbers::pi * uniform(0, 1));
  }
  // How often something with this mean happens: Knuth's product of uniform numbers.
  int poisson(double mean) {
    int count = 0;
    for (double product = uniform(0, 1); product > std::exp(-mean); product *= uniform(0, 1)) ++count;
    return count;
  }

 private:
  std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ULL); }
  std::uint64_t state_;
};

// A Gaussian field of variance 1 whose amplitudes fall as |k|^-slope: waves of whole numbers of periods along
// the longitudes. A plane wave is a product of sines of row and column, so that the inner loop has no sine.
Field red_field(Random& random, double slope) {
  constexpr int kWaves = 64;
  constexpr double kMostPeriods = 16;
  Field field(kCells, 0.0);
  double power = 0;
  std::array<double, kColumns> cosines;
  std::array<double, kColumns> sines;
  for (int wave = 0; wave < kWaves; ++wave) {
    // Uniform in the logarithm of |k|; the amplitude has the density of the modes of a plane.
    const double size = std::exp(random.uniform(0, std::log(kMostPeriods)));
    const double angle = random.uniform(0, std::numbers::pi);
    const double along = std::round(size * std::cos(angle));
    const double across = size * std::sin(angle) * 0.5 * kRows / (0.5 * kColumns);
    const double amplitude = std::pow(size, 1 - slope) * random.normal();
    const double phase = random.uniform(0, 2 * std::numbers::pi);
    power += 0.5 * std::pow(size, 2 - 2 * slope);
    for (int column = 0; column < kColumns; ++column) {
      const double x = 2 * std::numbers::pi * along * column / kColumns + phase;
      cosines[column] = amplitude * std::cos(x);
      sines[column] = amplitude * std::sin(x);
    }
    for (int row = 0; row < kRows; ++row) {
      const double y = 2 * std::numbers::pi * across * row / kRows;
      const double c = std::cos(y);
      const double s = std::sin(y);
      for (int column = 0; column < kColumns; ++column)
        field[row * kColumns + column] += c * cosines[column] - s * sines[column];
    }
  }
  for (double& value : field) value /= std::sqrt(power);
  return field;
}

class Weather {
 public:
  Weather(std::uint64_t key, double strength, double noise)
      : random_(key), strength_(strength), noise_(noise), labels_(kCells, background) {
    for (Field& field : channels_) field.assign(kCells, 0.0);
    make_background();
    const int cold_lows = random_.poisson(2);
    for (int i = 0; i < cold_lows; ++i) add_low(false);
    const int patches = random_.poisson(2);
    for (int i = 0; i < patches; ++i) add_patch();
    const int rivers = random_.poisson(kRivers);
    for (int i = 0; i < rivers; ++i) add_river();
    const int cyclones = random_.poisson(kCyclones);
    for (int i = 0; i < cyclones; ++i) add_low(true);
    for (Field& field : channels_)
      for (double& value : field) value += noise_ * random_.normal();
  }

  void write(float* weather, float* events) const {
    // Units of the model's variables: the channels above are in deviations.
    constexpr std::array<double, kChannels> kMean = {25,  2,   0,    1,   0,   0.01, 98000, 101200,
                                                     218, 260, 3e-8, 285, 283, 130,  12000, 60};
    constexpr std::array<double, kChannels> kDeviation = {16, 8,  6,    6,  5,  0.006, 3000, 1000,
                                                          6,  12, 7e-8, 15, 15, 80,    500,  5};
    for (int channel = 0; channel < kChannels; ++channel)
      for (int cell = 0; cell < kCells; ++cell)
        weather[channel * kCells + cell] =
            static_cast<float>(kMean[channel] + kDeviation[channel] * channels_[channel][cell]);
    for (int cell = 0; cell < kCells; ++cell) events[cell] = static_cast<float>(labels_[cell]);
  }

 private:
  static constexpr double kCyclones = 1.0;  // in a sample, on average
  static constexpr double kRivers = 1.3;

  void make_background() {
    const Field pressure = red_field(random_, 2.5);
    const Field temperature = red_field(random_, 2.2);
    const Field moisture = red_field(random_, 1.8);
    std::array<Field, kChannels> own;
    for (Field& field : own) field = red_field(random_, 1.8);
    for (int row = 0; row < kRows; ++row) {
      const double degrees = latitude(row);
      const double warm = std::cos(degrees * std::numbers::pi / 180);
      const double jet = std::exp(-std::pow((std::abs(degrees) - 40) / 12, 2));
      const double wet = std::exp(-std::pow(degrees / 25, 2));
      for (int column = 0; column < kColumns; ++column) {
        const int cell = row * kColumns + column;
        const double p = pressure[cell];
        const double t = temperature[cell];
        const double q = moisture[cell];
        // Winds follow the gradient of the pressure, which has opposite signs in the two hemispheres.
        const int north = std::min(row + 1, kRows - 1) * kColumns + column;
        const int east = row * kColumns + (column + 1) % kColumns;
        const double turn = degrees >= 0 ? 1 : -1;
        const double u = 1.5 * jet - 4 * turn * (pressure[north] - p);
        const double v = 4 * turn * (pressure[east] - p);
        const auto set = [&](Channel channel, double value) {
          channels_[channel][cell] = value + 0.3 * own[channel][cell];
        };
        set(TMQ, 2.2 * wet - 0.8 + 0.6 * q);
        set(U850, u);
        set(V850, v);
        set(UBOT, 0.8 * u);
        set(VBOT, 0.8 * v);
        set(QREFHT, 2.0 * wet - 0.8 + 0.6 * q);
        set(PS, 0.5 * p);
        set(PSL, p);
        set(T200, 0.5 * warm + 0.5 * t);
        set(T500, 1.8 * warm - 1 + 0.6 * t);
        set(PRECT, 0.7 * std::max(0.0, q - 0.8) + 0.5 * wet);
        set(TS, 2 * warm - 1.2 + 0.5 * t);
        set(TREFHT, 2 * warm - 1.2 + 0.5 * t);
        set(Z1000, p);
        set(Z200, 1.2 * warm - 0.6 + 0.5 * t + 0.3 * p);
        set(ZBOT, 0.5 * t);
      }
    }
  }

  // Calls `act(cell, distance, rows to the north, columns to the east)` for all cells within `reach` of a
  // place.
  template <typename Act>
  void around(double row, double column, double reach, Act act) {
    for (int r = std::max(0, static_cast<int>(row - reach));
         r <= std::min(kRows - 1, static_cast<int>(row + reach) + 1); ++r) {
      for (int c = static_cast<int>(std::floor(column - reach)); c <= static_cast<int>(column + reach) + 1;
           ++c) {
        const double north = r - row;
        const double east = c - column;
        const double distance = std::hypot(north, east);
        if (distance <= reach)
          act(r * kColumns + ((c % kColumns) + kColumns) % kColumns, distance, north, east);
      }
    }
  }

  // A tropical cyclone, or a low of middle latitudes: wider, cold above, dry and without a label.
  void add_low(bool tropical) {
    const double side = random_.uniform(0, 1) < 0.5 ? -1 : 1;
    const double degrees = side * (tropical ? random_.uniform(8, 30) : random_.uniform(35, 65));
    const double row = (degrees + 90) / kDegree - 0.5;
    const double column = random_.uniform(0, kColumns);
    const double radius = tropical ? random_.uniform(1.7, 2.5) : random_.uniform(2.5, 4.5);
    const double depth = strength_ * random_.uniform(0.8, 1.3);
    around(row, column, 5 * radius, [&](int cell, double distance, double north, double east) {
      const double core = std::exp(-0.5 * std::pow(distance / radius, 2));
      // Rankine's vortex with a smooth edge: the wind is greatest at `radius`, against the clock in the
      // north.
      const double speed =
          side * 2.6 * depth * distance / radius * std::exp(0.5 * (1 - std::pow(distance / radius, 2)));
      const double u = distance > 0 ? -speed * north / distance : 0;
      const double v = distance > 0 ? speed * east / distance : 0;
      const auto add = [&](Channel channel, double value) { channels_[channel][cell] += value; };
      add(PSL, -2.5 * depth * core);
      add(PS, -1.2 * depth * core);
      add(Z1000, -2.5 * depth * core);
      add(U850, u);
      add(V850, v);
      add(UBOT, 0.9 * u);
      add(VBOT, 0.9 * v);
      add(T500, (tropical ? 0.8 : -0.8) * depth * core);
      add(T200, (tropical ? 1.5 : -0.8) * depth * core);
      add(Z200, (tropical ? 0.8 : -0.8) * depth * core);
      if (!tropical) return;
      add(TMQ, 1.4 * depth * core);
      add(QREFHT, 0.8 * depth * core);
      add(PRECT, 2.5 * depth * core);
      if (distance <= radius) labels_[cell] = cyclone;
    });
  }

  // Moisture without the shape of a river, and without a label.
  void add_patch() {
    const double row = (random_.uniform(-50, 50) + 90) / kDegree - 0.5;
    const double column = random_.uniform(0, kColumns);
    const double radius = random_.uniform(3, 6);
    const double depth = strength_ * random_.uniform(0.8, 1.3);
    around(row, column, 3 * radius, [&](int cell, double distance, double, double) {
      const double core = std::exp(-0.5 * std::pow(distance / radius, 2));
      channels_[TMQ][cell] += 1.6 * depth * core;
      channels_[QREFHT][cell] += 0.8 * depth * core;
      channels_[PRECT][cell] += 0.8 * depth * core;
    });
  }

  // A path from the edge of the tropics to the pole and to the east, which meanders.
  void add_river() {
    const double side = random_.uniform(0, 1) < 0.5 ? -1 : 1;
    const double length = random_.uniform(30, 60);  // cells
    const double width = random_.uniform(1.3, 1.9);
    const double depth = strength_ * random_.uniform(0.8, 1.3);
    double row = (side * random_.uniform(14, 22) + 90) / kDegree - 0.5;
    double column = random_.uniform(0, kColumns);
    double heading = random_.uniform(0.3, 0.8);  // radians from the east to the pole
    const double bend = random_.uniform(-0.02, 0.01);
    const double waviness = random_.uniform(0, 0.35);
    const double phase = random_.uniform(0, 2 * std::numbers::pi);
    // The distance of each cell to the path, and the path's direction there.
    constexpr double kStep = 0.5;
    const double reach = 4 * width;
    std::vector<double> nearest(kCells, reach + 1);
    std::vector<double> direction(kCells, 0.0);
    for (double way = 0; way < length; way += kStep) {
      const double now = heading + waviness * std::sin(way / 6 + phase);
      around(row, column, reach, [&](int cell, double distance, double, double) {
        if (distance >= nearest[cell]) return;
        nearest[cell] = distance;
        direction[cell] = now;
      });
      row += side * kStep * std::sin(now);
      column += kStep * std::cos(now);
      heading = std::clamp(heading + kStep * bend, 0.05, 1.2);
      if (std::abs(latitude(row)) > 62) break;
    }
    for (int cell = 0; cell < kCells; ++cell) {
      if (nearest[cell] > reach) continue;
      const double core = std::exp(-0.5 * std::pow(nearest[cell] / width, 2));
      const auto add = [&](Channel channel, double value) {
        channels_[channel][cell] += value * depth * core;
      };
      add(TMQ, 1.9);
      add(QREFHT, 0.7);
      add(PRECT, 0.9);
      add(U850, 1.2 * std::cos(direction[cell]));
      add(V850, side * 1.2 * std::sin(direction[cell]));
      add(UBOT, 0.6 * std::cos(direction[cell]));
      add(VBOT, side * 0.6 * std::sin(direction[cell]));
      if (nearest[cell] <= 1.1 * width && labels_[cell] == background) labels_[cell] = river;
    }
  }

  Random random_;
  double strength_;  // of the events, over the background's deviation
  double noise_;
  std::array<Field, kChannels> channels_;
  std::vector<int> labels_;
};

constexpr wflow_array kArrays[] = {
    {"weather", WFLOW_FLOAT32, 3, {kChannels, kRows, kColumns}},
    {"events", WFLOW_FLOAT32, 2, {kRows, kColumns}},
};

constexpr std::uint32_t kParameters = 3;

int begin(const wflow_context* context, void**, char* error, size_t error_bytes) {
  if (context->parameters == kParameters) return 0;
  std::snprintf(error, error_bytes,
                "climate takes 3 parameters (seed, strength, noise), and the study has %u",
                context->parameters);
  return 1;
}

int run(void*, std::uint64_t, const double* parameters, void* const* results, char* error,
        size_t error_bytes) {
  const double strength = parameters[1];
  const double noise = parameters[2];
  if (!(strength > 0) || !(noise >= 0)) {
    std::snprintf(error, error_bytes, "'strength' must be positive and 'noise' not negative, found %g and %g",
                  strength, noise);
    return 1;
  }
  const Weather weather(std::bit_cast<std::uint64_t>(parameters[0]), strength, noise);
  weather.write(static_cast<float*>(results[0]), static_cast<float*>(results[1]));
  return 0;
}

}  // namespace

extern "C" const struct wflow_plugin* wflow_plugin(void) {
  static const struct wflow_plugin kPlugin = {WFLOW_PLUGIN_ABI, 2, kArrays, begin, run, nullptr, nullptr};
  return &kPlugin;
}
