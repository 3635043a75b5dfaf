// SPDX-License-Identifier: Apache-2.0
// From stored values to the network's inputs: a point-wise transform, a normalisation by the training split's
// statistics, and the symmetries of the box.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converters/shards/codec.h"
#include "trainer/config.h"
#include "trainer/data/sample_source.h"
#include "trainer/model/layout.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Works in place. Returns false if a value is not finite before or after it, such as the logarithm of a
// negative density.
bool apply_transform(const TransformConfig& transform, std::span<float> values);
// The same for values from which `centre` was subtracted; subtracts `transformed_centre` from the results.
// Computes in float64.
bool apply_transform(const TransformConfig& transform, std::span<float> values, double centre,
                     double transformed_centre);
double transformed(const TransformConfig& transform, double value);

// The value to subtract in float64 before values become float32, to keep their variation: the mean, if it is
// so far from 0 that float32 would lose more than 1e-5 deviations; else 0.
double centre_of(double mean, double deviation);

// Mean and deviation of each of a field's channels.
struct FieldScale {
  std::vector<double> mean;
  std::vector<double> std;
  bool transformed = false;  // the transform acts on it
  bool operator==(const FieldScale&) const = default;
  // True if a channel must be normalised in float64: centre_of() is not 0.
  bool needs_double() const;
};

// normalised = (transformed - mean) / deviation, per channel; the same for the chosen targets.
struct Normalisation {
  std::vector<double> x_mean;  // the first input, if its name is `x`
  std::vector<double> x_std;
  std::vector<double> y_mean;
  std::vector<double> y_std;
  std::vector<double> numbers_mean = {};  // labels that are inputs, in order of the inputs
  std::vector<double> numbers_std = {};
  std::map<std::string, FieldScale> fields = {};  // fields with other names
  // No value for a label.
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

// A function of only (seed, epoch, sample). Exchanges axes that have the same number of
// cells.
Augmentation draw_augmentation(const AugmentConfig& config, const TensorShape& shape, std::uint64_t seed,
                               std::uint64_t epoch, std::int64_t sample_id);

// Key of a sample's noise, a function of the same.
std::uint64_t noise_key(std::uint64_t seed, std::uint64_t epoch, std::int64_t sample_id);
// Adds Gaussian noise to each value; the noise of value i is a function of only (key, i).
void add_noise(std::span<float> values, std::uint64_t key, double deviation);
// The same for the cells of a box, which get the noise that they have in the whole sample.
void add_noise(std::span<float> values, const TensorShape& shape, const Box& box, std::uint64_t key,
               double deviation);

// Factor and offset of each channel for copy_sample(): x * factor + offset.
std::vector<converters::Scale> channel_scales(const FieldScale& scale);

// Normalises and augments one transformed sample of a field in one pass.
void copy_sample(std::span<const float> from, std::span<float> to, const TensorShape& shape,
                 std::span<const converters::Scale> scales, const Augmentation& augmentation);

// The cells of the stored sample that a box of the augmented one consists of.
PeriodicBox preimage(const Augmentation& augmentation, const TensorShape& shape, const Box& box);

// A part of a transformed sample: the values of its cells, channel by channel.
struct SamplePart {
  std::span<const float> values;
  PeriodicBox cells;
};
// The cells of `box` of what copy_sample() makes. `from` has at least their preimage.
void copy_box(const SamplePart& from, std::span<float> to, const Box& box, const TensorShape& shape,
              std::span<const converters::Scale> scales, const Augmentation& augmentation);

}  // namespace wflow::trainer
