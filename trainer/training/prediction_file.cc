// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/prediction_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/version.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {
namespace {

bool is_field(const PredictionFileDescription& description) {
  return description.extent != std::array<std::int64_t, 3>{1, 1, 1};
}

}  // namespace

struct PredictionFile::State {
  RowFile file;
  Objective objective;
  ExportedUnits units;
  PredictionFileDescription description;
  std::size_t truth = 0;  // datasets of the file
  std::size_t prediction = 0;
  std::size_t deviation = 0;
  std::size_t probability = 0;

  std::size_t cells() const { return static_cast<std::size_t>(objective.shape().cells); }
  std::size_t targets() const { return objective.shape().labels.size(); }
  bool classes() const { return is_classification(objective.name()); }

  void create();
  std::size_t dataset(const char* name, std::int64_t channels);
  void write_classes(std::size_t first, std::size_t count, std::span<const float> outputs);
  void write_numbers(std::size_t first, std::size_t count, std::span<const float> outputs);
};

std::size_t PredictionFile::State::dataset(const char* name, std::int64_t channels) {
  std::vector<std::int64_t> shape = {channels};
  if (is_field(description)) shape.insert(shape.end(), description.extent.begin(), description.extent.end());
  return file.add(name, shape);
}

void PredictionFile::State::create() {
  file.number("wflow_format", kPredictionFormat);
  file.number("epoch", description.epoch);
  file.text("producer", {fmt::format("wflow {}", kVersion)});
  file.text("data_hash", {description.data_hash});
  file.text("targets", objective.shape().labels);
  const bool transformed = units.field_target && units.target_transformed &&
                           objective.name() == LossName::gaussian &&
                           units.transform.name != TransformName::none;
  file.text("units", {transformed ? "transformed" : "physical"});
  const auto channels = static_cast<std::int64_t>(targets());
  truth = dataset("truth", channels);
  prediction = dataset("prediction", channels);
  if (objective.name() == LossName::gaussian) deviation = dataset("deviation", channels);
  if (classes()) probability = dataset("probability", objective.shape().classes);
}

void PredictionFile::State::write_classes(std::size_t first, std::size_t count,
                                          std::span<const float> outputs) {
  const auto most = static_cast<std::size_t>(objective.shape().classes);
  std::vector<float> likeliest(count * cells());
  std::vector<float> shares(outputs.begin(), outputs.end());
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t cell = 0; cell < cells(); ++cell) {
      const auto at = [&](std::size_t k) -> float& { return shares[(n * most + k) * cells() + cell]; };
      std::size_t best = 0;
      for (std::size_t k = 1; k < most; ++k)
        if (at(k) > at(best)) best = k;
      const float top = at(best);
      double sum = 0;
      for (std::size_t k = 0; k < most; ++k) sum += std::exp(static_cast<double>(at(k)) - top);
      for (std::size_t k = 0; k < most; ++k)
        at(k) = static_cast<float>(std::exp(static_cast<double>(at(k)) - top) / sum);
      likeliest[n * cells() + cell] = static_cast<float>(best);
    }
  }
  file.write(prediction, first, likeliest);
  file.write(probability, first, shares);
}

void PredictionFile::State::write_numbers(std::size_t first, std::size_t count,
                                          std::span<const float> outputs) {
  const bool gaussian = objective.name() == LossName::gaussian;
  const std::size_t values = targets() * cells();
  const std::size_t channels = gaussian ? 2 * values : values;
  std::vector<float> means(count * values);
  std::vector<float> deviations(gaussian ? means.size() : 0);
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t i = 0; i < values; ++i) {
      means[n * values + i] = static_cast<float>(units.physical(outputs[n * channels + i], i / cells()));
      if (!gaussian) continue;
      const double half_logarithm = 0.5 * outputs[n * channels + values + i];
      deviations[n * values + i] =
          static_cast<float>(std::exp(half_logarithm) * units.normalisation.y_std[i / cells()]);
    }
  }
  file.write(prediction, first, means);
  if (gaussian) file.write(deviation, first, deviations);
}

PredictionFile::PredictionFile(const std::filesystem::path& target, const Objective& objective,
                               const ExportedUnits& units, const PredictionFileDescription& description,
                               std::span<const std::int64_t> ids)
    : state_(new State{RowFile(target, ids), objective, units, description}) {
  state_->create();
}

PredictionFile::~PredictionFile() = default;

void PredictionFile::write(std::size_t first, std::span<const float> truths, std::span<const float> outputs) {
  const std::size_t count = truths.size() / state_->objective.truth_count();
  WFLOW_CHECK(outputs.size() == count * state_->objective.output_count() &&
              first + count <= state_->file.rows());
  std::vector<float> physical(truths.begin(), truths.end());
  if (!state_->classes()) {
    for (std::size_t i = 0; i < physical.size(); ++i)
      physical[i] =
          static_cast<float>(state_->units.physical(physical[i], i / state_->cells() % state_->targets()));
  }
  state_->file.write(state_->truth, first, physical);
  if (state_->classes()) {
    state_->write_classes(first, count, outputs);
  } else {
    state_->write_numbers(first, count, outputs);
  }
}

void PredictionFile::publish() {
  state_->file.publish();
}

}  // namespace wflow::trainer
