// SPDX-License-Identifier: Apache-2.0
// From what a simulation wrote to what the network sees: a point-wise transform, a normalisation by the
// training split's statistics, and the symmetries of the box.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converters/shards/planes.h"
#include "trainer/config.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// In place. Gives false if a value is not finite (before or after): the logarithm of a negative density, say.
bool apply_transform(const TransformConfig& transform, std::span<float> values);
// The same of values that stand `centre` below the true ones; gives them `transformed_centre` below, in float64
// between.
bool apply_transform(const TransformConfig& transform, std::span<float> values, double centre,
                     double transformed_centre);
double transformed(const TransformConfig& transform, double value);

// What is subtracted in float64 before values become float32, so that these hold what varies: the mean, where
// it is so far from 0 that float32 would lose more than 1e-5 deviations; else 0.
double centre_of(double mean, double deviation);

// Of a field's channels.
struct FieldScale {
  std::vector<double> mean;
  std::vector<double> std;
  bool transformed = false;  // the transform acts on it
  bool operator==(const FieldScale&) const = default;
  // Whether a channel's values are to be normalised in float64: centre_of() is not 0.
  bool needs_double() const;
};

// seen = (transformed - mean) / deviation, a channel; the same for the chosen targets.
struct Normalisation {
  std::vector<double> x_mean;  // of the first input, where it is called `x`
  std::vector<double> x_std;
  std::vector<double> y_mean;
  std::vector<double> y_std;
  std::vector<double> numbers_mean = {};  // of labels that are inputs, in order of the inputs
  std::vector<double> numbers_std = {};
  std::map<std::string, FieldScale> fields = {};  // of fields that are called by their names
  // Nothing of a label.
  std::optional<FieldScale> of_field(const std::string& name) const;
  bool operator==(const Normalisation&) const = default;
};
nlohmann::json to_json(const Normalisation& normalisation);
Normalisation normalisation_from_json(const nlohmann::json& json);

// Output cell o along axis a is input cell (mirror[a] ? n-1-o : o) + shift[a], periodic, along axis
// source[a].
struct Augmentation {
  std::array<std::uint8_t, 3> source = {0, 1, 2};
  std::array<bool, 3> mirror = {false, false, false};
  std::array<std::int64_t, 3> shift = {0, 0, 0};
  bool operator==(const Augmentation&) const = default;
};

// A function of (seed, epoch, sample) alone. Axes are exchanged with others of as many
// cells.
Augmentation draw_augmentation(const AugmentConfig& config, const TensorShape& shape, std::uint64_t seed,
                               std::uint64_t epoch, std::int64_t sample_id);

// Of the noise of a sample, a function of the same.
std::uint64_t noise_key(std::uint64_t seed, std::uint64_t epoch, std::int64_t sample_id);
// Adds to value i Gaussian noise that is a function of (key, i) alone.
void add_noise(std::span<float> values, std::uint64_t key, double deviation);

// x * factor + offset of each channel: what copy_sample does with it.
std::vector<converters::Scale> channel_scales(const FieldScale& scale);

// Normalises and augments one transformed sample of a field in one pass.
void copy_sample(std::span<const float> from, std::span<float> to, const TensorShape& shape,
                 std::span<const converters::Scale> scales, const Augmentation& augmentation);

}  // namespace wflow::trainer
