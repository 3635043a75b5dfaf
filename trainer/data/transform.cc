// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/transform.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {

bool apply_transform(const TransformConfig& transform, std::span<float> values) {
  switch (transform.name) {
    case TransformName::none:
      break;
    case TransformName::log: {
      const auto offset = static_cast<float>(transform.offset);
      for (float& v : values) v = std::log(v + offset);
      break;
    }
    case TransformName::log1p:
      for (float& v : values) v = std::log1p(v);
      break;
  }
  float sum = 0;  // sum of 0 * v: finite as long as all values are
  for (const float v : values) sum += v * 0.0F;
  return sum == 0.0F;
}

double transformed(const TransformConfig& transform, double value) {
  switch (transform.name) {
    case TransformName::log:
      return std::log(value + transform.offset);
    case TransformName::log1p:
      return std::log1p(value);
    case TransformName::none:
      break;
  }
  return value;
}

bool apply_transform(const TransformConfig& transform, std::span<float> values, double centre,
                     double transformed_centre) {
  float sum = 0;
  for (float& v : values) {
    v = static_cast<float>(transformed(transform, v + centre) - transformed_centre);
    sum += v * 0.0F;
  }
  return sum == 0.0F;
}

double centre_of(double mean, double deviation) {
  constexpr double kFloatHolds = 100;  // deviations; the step of float32 is 6e-8 of the mean
  return std::isfinite(mean) && std::abs(mean) > kFloatHolds * deviation ? mean : 0;
}

bool FieldScale::needs_double() const {
  for (std::size_t c = 0; c < std.size(); ++c)
    if (centre_of(mean[c], std[c]) != 0) return true;
  return false;
}

nlohmann::json to_json(const Normalisation& normalisation) {
  nlohmann::json json = {{"x_mean", normalisation.x_mean},
                         {"x_std", normalisation.x_std},
                         {"y_mean", normalisation.y_mean},
                         {"y_std", normalisation.y_std}};
  if (!normalisation.numbers_mean.empty()) {
    json["numbers_mean"] = normalisation.numbers_mean;
    json["numbers_std"] = normalisation.numbers_std;
  }
  for (const auto& [name, scale] : normalisation.fields)
    json["fields"][name] = {{"mean", scale.mean}, {"std", scale.std}, {"transformed", scale.transformed}};
  return json;
}

Normalisation normalisation_from_json(const nlohmann::json& json) {
  Normalisation normalisation = {
      json.at("x_mean").get<std::vector<double>>(),      json.at("x_std").get<std::vector<double>>(),
      json.at("y_mean").get<std::vector<double>>(),      json.at("y_std").get<std::vector<double>>(),
      json.value("numbers_mean", std::vector<double>()), json.value("numbers_std", std::vector<double>())};
  const nlohmann::json fields = json.value("fields", nlohmann::json::object());
  for (const auto& [name, scale] : fields.items()) {
    normalisation.fields[name] = {scale.at("mean").get<std::vector<double>>(),
                                  scale.at("std").get<std::vector<double>>(),
                                  scale.at("transformed").get<bool>()};
  }
  return normalisation;
}

std::optional<FieldScale> Normalisation::of_field(const std::string& name) const {
  if (name == kField) return FieldScale{x_mean, x_std, true};
  const auto found = fields.find(name);
  return found == fields.end() ? std::nullopt : std::optional(found->second);
}

Augmentation draw_augmentation(const AugmentConfig& config, const TensorShape& shape, std::uint64_t seed,
                               std::uint64_t epoch, std::int64_t sample_id) {
  Augmentation drawn;
  const std::uint64_t key = hash64(hash64(seed, epoch), static_cast<std::uint64_t>(sample_id));
  const auto& n = shape.extent;
  if (config.permute) {
    // Permutations that keep the shape: 6 for a cube, 2 for a square.
    constexpr std::array<std::array<std::uint8_t, 3>, 6> kOrders = {
        {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}};
    std::array<std::size_t, kOrders.size()> possible{};
    std::size_t count = 0;
    for (std::size_t i = 0; i < kOrders.size(); ++i) {
      const auto& order = kOrders[i];
      if (n[order[0]] == n[0] && n[order[1]] == n[1] && n[order[2]] == n[2]) possible[count++] = i;
    }
    drawn.source = kOrders[possible[hash64(key, 0) % count]];
  }
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (config.flip) drawn.mirror[axis] = (hash64(key, 1 + axis) & 1) != 0;
    if (config.shift) {
      drawn.shift[axis] =
          static_cast<std::int64_t>(hash64(key, 4 + axis) % static_cast<std::uint64_t>(n[axis]));
    }
  }
  return drawn;
}

std::uint64_t noise_key(std::uint64_t seed, std::uint64_t epoch, std::int64_t sample_id) {
  constexpr std::uint64_t kNoise = 7;  // draw_augmentation uses 0 to 6
  return hash64(hash64(hash64(seed, epoch), static_cast<std::uint64_t>(sample_id)), kNoise);
}

namespace {

// Adds their noise to the values of the sample from number `first` on. Box and Muller: two uniform numbers of
// 24 bits give two normal ones, for the values 2 k and 2 k + 1.
void add_noise_to_run(std::span<float> values, std::size_t first, std::uint64_t key, float size) {
  constexpr float kTurn = 6.28318530717958647692F;
  constexpr float kStep = 0x1p-24F;
  const std::size_t end = first + values.size();
  for (std::size_t i = first - first % 2; i < end; i += 2) {
    const std::uint64_t bits = hash64(key, i);
    const float u = (static_cast<float>(bits >> 40) + 1) * kStep;  // above 0
    const float v = static_cast<float>(bits & 0xffffff) * kStep;
    const float radius = size * std::sqrt(-2.0F * std::log(u));
    if (i >= first) values[i - first] += radius * std::cos(kTurn * v);
    if (i + 1 < end) values[i + 1 - first] += radius * std::sin(kTurn * v);
  }
}

}  // namespace

void add_noise(std::span<float> values, std::uint64_t key, double deviation) {
  add_noise_to_run(values, 0, key, static_cast<float>(deviation));
}

void add_noise(std::span<float> values, const TensorShape& shape, const Box& box, std::uint64_t key,
               double deviation) {
  const auto& n = shape.extent;
  const auto width = static_cast<std::size_t>(box.axes[2].count());
  std::size_t at = 0;
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    for (std::int64_t d = box.axes[0].begin; d < box.axes[0].end; ++d) {
      for (std::int64_t h = box.axes[1].begin; h < box.axes[1].end; ++h, at += width) {
        const std::int64_t first = ((c * n[0] + d) * n[1] + h) * n[2] + box.axes[2].begin;
        add_noise_to_run(values.subspan(at, width), static_cast<std::size_t>(first), key,
                         static_cast<float>(deviation));
      }
    }
  }
}

std::vector<converters::Scale> channel_scales(const FieldScale& scale) {
  std::vector<converters::Scale> scales;
  for (std::size_t c = 0; c < scale.std.size(); ++c)
    scales.push_back(
        {static_cast<float>(1 / scale.std[c]), static_cast<float>(-scale.mean[c] / scale.std[c])});
  return scales;
}

namespace {

// The cell of the stored sample, along the axis that an axis of the augmented one was.
std::int64_t stored_cell(const Augmentation& augmentation, std::size_t axis, std::int64_t length,
                         std::int64_t cell) {
  return ((augmentation.mirror[axis] ? length - 1 - cell : cell) + augmentation.shift[axis]) % length;
}

}  // namespace

PeriodicBox preimage(const Augmentation& augmentation, const TensorShape& shape, const Box& box) {
  PeriodicBox stored;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const Range& range = box.axes[axis];
    const std::size_t source = augmentation.source[axis];
    const std::int64_t first = augmentation.mirror[axis] ? range.end - 1 : range.begin;
    const bool whole = range.count() == shape.extent[axis];
    stored.start[source] = whole ? 0 : stored_cell(augmentation, axis, shape.extent[axis], first);
    stored.count[source] = range.count();
  }
  return stored;
}

void copy_box(const SamplePart& from, std::span<float> to, const Box& box, const TensorShape& shape,
              std::span<const converters::Scale> scales, const Augmentation& augmentation) {
  const auto& n = shape.extent;
  const PeriodicBox& part = from.cells;
  const std::array<std::int64_t, 3> strides = {part.count[1] * part.count[2], part.count[2], 1};
  std::array<std::vector<std::int64_t>, 3> offsets;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::size_t source = augmentation.source[axis];
    for (std::int64_t o = box.axes[axis].begin; o < box.axes[axis].end; ++o) {
      const std::int64_t place = part.place(source, stored_cell(augmentation, axis, n[axis], o), n[axis]);
      WFLOW_CHECK(place < part.count[source]);
      offsets[axis].push_back(place * strides[source]);
    }
  }
  float* out = to.data();
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    const auto [factor, constant, centre] = scales[static_cast<std::size_t>(c)];
    WFLOW_CHECK(centre == 0);  // subtracted when the sample was read
    const float* in = from.values.data() + c * part.cells();
    for (const std::int64_t d : offsets[0]) {
      for (const std::int64_t h : offsets[1]) {
        const float* row = in + d + h;
        for (const std::int64_t w : offsets[2]) *out++ = row[w] * factor + constant;
      }
    }
  }
}

void copy_sample(std::span<const float> from, std::span<float> to, const TensorShape& shape,
                 std::span<const converters::Scale> scales, const Augmentation& augmentation) {
  const Box whole = Box::of(shape.extent);
  copy_box({from, PeriodicBox(whole)}, to, whole, shape, scales, augmentation);
}

}  // namespace wflow::trainer
