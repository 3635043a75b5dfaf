// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/prediction_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/csv.h"
#include "base/error.h"
#include "base/version.h"
#include "trainer/training/report.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {
struct PredictionFile::State {
  RowFile file;
  Objective objective;
  ExportedUnits units;
  PredictionFileDescription description;
  std::size_t truth = 0;  // numbers of the file's datasets
  std::size_t prediction = 0;
  std::size_t deviation = 0;
  std::size_t probability = 0;
  std::size_t mask = 0;
  std::size_t quantile = 0;

  std::size_t cells() const { return static_cast<std::size_t>(objective.shape().cells); }
  std::size_t targets() const { return objective.shape().labels.size(); }
  bool classes() const { return is_classification(objective.name()); }
  bool with_mask() const { return has_mask(static_cast<std::size_t>(objective.shape().classes), cells()); }

  std::vector<std::int64_t> ids = {};
  std::vector<std::string> lines = {};  // rows of table()

  void add_lines(std::size_t first, std::span<const double> truths, std::span<const double> predictions,
                 std::span<const double> deviations);
  void create();
  bool wide() const { return units.output_needs_double(); }
  std::size_t dataset(const char* name, std::int64_t channels, bool wide = false);
  // Return the predictions.
  std::vector<double> write_classes(std::size_t first, std::size_t count, std::span<const float> outputs);
  std::vector<double> write_numbers(std::size_t first, std::size_t count, std::span<const float> outputs,
                                    std::vector<double>& deviations);
};

std::size_t PredictionFile::State::dataset(const char* name, std::int64_t channels, bool wide) {
  std::vector<std::int64_t> shape;
  if (channels > 1 || !description.without_channels) shape.push_back(channels);
  shape.insert(shape.end(), description.grid.begin(), description.grid.end());
  return file.add(name, shape, wide);
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
  truth = dataset("truth", channels, wide() || !description.truths.empty());
  prediction = dataset("prediction", channels, wide());
  if (objective.name() == LossName::gaussian) deviation = dataset("deviation", channels);
  if (classes()) probability = dataset("probability", objective.shape().classes);
  if (with_mask()) mask = file.add_bytes("mask", description.grid);
  if (objective.name() != LossName::quantile) return;
  const std::vector<double>& quantiles = objective.config().quantiles;
  file.reals("quantiles", quantiles);
  std::vector<std::int64_t> shape = {std::ssize(quantiles)};
  if (channels > 1 || !description.without_channels) shape.push_back(channels);
  shape.insert(shape.end(), description.grid.begin(), description.grid.end());
  quantile = file.add("quantile", shape, wide());
}

std::vector<std::uint8_t> mask_of(std::span<const double> classes) {
  std::vector<std::uint8_t> mask;
  mask.reserve(classes.size());
  for (const double number : classes) mask.push_back(static_cast<std::uint8_t>(number));
  return mask;
}

// Padding has no truth and no error.
void PredictionFile::State::add_lines(std::size_t first, std::span<const double> truths,
                                      std::span<const double> predictions,
                                      std::span<const double> deviations) {
  const std::size_t values = targets() * cells();
  for (std::size_t n = 0; n < truths.size() / values; ++n) {
    std::string line;
    for (std::size_t t = 0; t < targets(); ++t) {
      const std::size_t begin = n * values + t * cells();
      if (cells() == 1) {
        line += "," + number_text(truths[begin], wide()) + "," + number_text(predictions[begin], wide());
        if (!deviations.empty()) line += "," + number_text(deviations[begin], false);
        continue;
      }
      double truth = 0, prediction = 0, absolute = 0, squared = 0, count = 0;
      for (std::size_t i = begin; i < begin + cells(); ++i) {
        if (std::isnan(truths[i])) continue;
        const double error = predictions[i] - truths[i];
        truth += truths[i];
        prediction += predictions[i];
        absolute += classes() ? (error != 0 ? 1 : 0) : std::abs(error);
        squared += error * error;
        ++count;
      }
      count = std::max(1.0, count);
      if (classes()) {
        line += "," + number_text(absolute / count, false);
        continue;
      }
      line += "," + number_text(truth / count, wide()) + "," + number_text(prediction / count, wide()) + "," +
              number_text(absolute / count, false) + "," + number_text(std::sqrt(squared / count), false);
    }
    lines[first + n] = std::move(line);
  }
}

std::vector<double> PredictionFile::State::write_classes(std::size_t first, std::size_t count,
                                                         std::span<const float> outputs) {
  const auto most = static_cast<std::size_t>(objective.shape().classes);
  std::vector<double> likeliest(count * cells());
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
      likeliest[n * cells() + cell] = static_cast<double>(best);
    }
  }
  file.write(prediction, first, likeliest);
  file.write(probability, first, shares);
  if (with_mask()) file.write(mask, first, mask_of(likeliest));
  return likeliest;
}

std::vector<double> PredictionFile::State::write_numbers(std::size_t first, std::size_t count,
                                                         std::span<const float> outputs,
                                                         std::vector<double>& deviations) {
  const bool gaussian = objective.name() == LossName::gaussian;
  const std::size_t values = targets() * cells();
  const std::size_t channels = objective.output_count();
  const std::size_t begin = objective.prediction_channel() * cells();
  std::vector<double> means(count * values);
  deviations.resize(gaussian ? means.size() : 0);
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t i = 0; i < values; ++i) {
      means[n * values + i] = units.physical(outputs[n * channels + begin + i], i / cells());
      if (!gaussian) continue;
      const double half_logarithm = 0.5 * outputs[n * channels + values + i];
      deviations[n * values + i] = std::exp(half_logarithm) * units.normalisation.y_std[i / cells()];
    }
  }
  file.write(prediction, first, means);
  if (gaussian) file.write(deviation, first, deviations);
  if (objective.name() == LossName::quantile) {
    std::vector<double> all(outputs.begin(), outputs.end());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = units.physical(all[i], i / cells() % targets());
    file.write(quantile, first, all);
  }
  return means;
}

PredictionFile::PredictionFile(const std::filesystem::path& target, const Objective& objective,
                               const ExportedUnits& units, const PredictionFileDescription& description,
                               std::span<const std::int64_t> ids)
    : state_(new State{RowFile(target, ids), objective, units, description}) {
  state_->lines.resize(ids.size());
  for (std::size_t n = 0; n < ids.size(); ++n) state_->ids.push_back(ids[n]);
  state_->create();
}

PredictionFile::~PredictionFile() = default;

void PredictionFile::write(std::size_t first, std::span<const float> truths, std::span<const float> outputs) {
  const std::size_t count = truths.size() / state_->objective.truth_count();
  WFLOW_CHECK(outputs.size() == count * state_->objective.output_count() &&
              first + count <= state_->file.rows());
  std::vector<double> physical(truths.begin(), truths.end());
  if (const std::vector<double>& known = state_->description.truths; !known.empty()) {
    const auto begin = known.begin() + static_cast<std::ptrdiff_t>(first * state_->targets());
    std::copy_n(begin, physical.size(), physical.begin());
  } else if (!state_->classes()) {
    for (std::size_t i = 0; i < physical.size(); ++i)
      physical[i] = state_->units.physical(physical[i], i / state_->cells() % state_->targets());
  }
  state_->file.write(state_->truth, first, physical);
  std::vector<double> deviations;
  const std::vector<double> predictions = state_->classes()
                                              ? state_->write_classes(first, count, outputs)
                                              : state_->write_numbers(first, count, outputs, deviations);
  if (state_->units.field_target) state_->add_lines(first, physical, predictions, deviations);
}

std::string PredictionFile::table() const {
  std::string out = "id";
  for (const std::string& name : state_->objective.shape().labels) {
    std::vector<const char*> columns = {"", "_predicted"};
    if (state_->objective.name() == LossName::gaussian) columns.push_back("_deviation");
    if (state_->cells() > 1) columns = {"_mean", "_mean_predicted", "_mae", "_rmse"};
    if (state_->cells() > 1 && state_->classes()) columns = {"_error_rate"};
    for (const char* column : columns) out += "," + csv::cell(name + column);
  }
  out += '\n';
  for (std::size_t n = 0; n < state_->lines.size(); ++n)
    out += std::to_string(state_->ids[n]) + state_->lines[n] + '\n';
  return out;
}

void PredictionFile::publish() {
  state_->file.publish();
}

}  // namespace wflow::trainer
