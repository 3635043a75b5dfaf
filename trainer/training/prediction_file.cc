// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/prediction_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/file.h"
#include "base/version.h"
#include "converters/input/hdf5_handle.h"

namespace wflow::trainer {
namespace {

using converters::AttributeId;
using converters::DatasetId;
using converters::FileId;
using converters::Hdf5Section;
using converters::PropertyId;
using converters::SpaceId;
using converters::TypeId;

constexpr int kPredictionFormat = 1;

bool is_field(const PredictionFileDescription& description) {
  return description.extent != std::array<std::int64_t, 3>{1, 1, 1};
}

}  // namespace

struct PredictionFile::State {
  DurableFile durable;
  std::filesystem::path target;
  Objective objective;
  ExportedUnits units;
  PredictionFileDescription description;
  std::size_t rows;
  FileId file{};
  DatasetId truth{};
  DatasetId prediction{};
  DatasetId deviation{};
  DatasetId probability{};

  hid_t check(hid_t id) const {
    if (id < 0) converters::throw_hdf5(ExitCode::system, fmt::format("cannot write {}", target.string()));
    return id;
  }
  std::size_t cells() const { return static_cast<std::size_t>(objective.shape().cells); }
  std::size_t targets() const { return objective.shape().labels.size(); }
  bool classes() const { return is_classification(objective.name()); }

  void create(std::span<const std::int64_t> ids);
  DatasetId dataset(const char* name, std::int64_t channels) const;
  void text_attribute(const char* name, const std::vector<std::string>& values) const;
  void number_attribute(const char* name, std::int64_t value) const;
  void write_rows(const DatasetId& dataset, std::size_t first, std::size_t count,
                  std::span<const float> values) const;
  // Channel `channel` of a prediction or a truth.
  float physical(float value, std::size_t channel) const;
  void write_classes(std::size_t first, std::size_t count, std::span<const float> outputs) const;
  void write_numbers(std::size_t first, std::size_t count, std::span<const float> outputs) const;
};

void PredictionFile::State::text_attribute(const char* name, const std::vector<std::string>& values) const {
  const hsize_t count = values.size();
  const SpaceId space(check(H5Screate_simple(1, &count, nullptr)));
  const TypeId type(check(H5Tcopy(H5T_C_S1)));
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const AttributeId attribute(
      check(H5Acreate2(file.get(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  std::vector<const char*> texts;
  for (const std::string& value : values) texts.push_back(value.c_str());
  if (!texts.empty()) check(H5Awrite(attribute.get(), type.get(), texts.data()));
}

void PredictionFile::State::number_attribute(const char* name, std::int64_t value) const {
  const SpaceId space(check(H5Screate(H5S_SCALAR)));
  const AttributeId attribute(
      check(H5Acreate2(file.get(), name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value));
}

DatasetId PredictionFile::State::dataset(const char* name, std::int64_t channels) const {
  std::vector<hsize_t> dims = {rows, static_cast<hsize_t>(channels)};
  if (is_field(description))
    for (const std::int64_t n : description.extent) dims.push_back(static_cast<hsize_t>(n));
  const SpaceId space(check(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr)));
  return DatasetId(check(
      H5Dcreate2(file.get(), name, H5T_IEEE_F32LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
}

void PredictionFile::State::create(std::span<const std::int64_t> ids) {
  const Hdf5Section section;
  const PropertyId access(check(H5Pcreate(H5P_FILE_ACCESS)));
  H5Pset_file_locking(access.get(), false, true);
  file = FileId(check(H5Fcreate(durable.temporary().c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.get())));
  number_attribute("wflow_format", kPredictionFormat);
  number_attribute("epoch", description.epoch);
  text_attribute("producer", {fmt::format("wflow {}", kVersion)});
  text_attribute("data_hash", {description.data_hash});
  text_attribute("targets", objective.shape().labels);
  const bool transformed = units.field_target && units.target_transformed &&
                           objective.name() == LossName::gaussian &&
                           units.transform.name != TransformName::none;
  text_attribute("units", {transformed ? "transformed" : "physical"});
  const hsize_t count = rows;
  const SpaceId space(check(H5Screate_simple(1, &count, nullptr)));
  const DatasetId id(
      check(H5Dcreate2(file.get(), "id", H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  if (!ids.empty()) check(H5Dwrite(id.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids.data()));
  const auto channels = static_cast<std::int64_t>(targets());
  truth = dataset("truth", channels);
  prediction = dataset("prediction", channels);
  if (objective.name() == LossName::gaussian) deviation = dataset("deviation", channels);
  if (classes()) probability = dataset("probability", objective.shape().classes);
}

void PredictionFile::State::write_rows(const DatasetId& dataset, std::size_t first, std::size_t count,
                                       std::span<const float> values) const {
  if (count == 0) return;
  const SpaceId whole(check(H5Dget_space(dataset.get())));
  std::array<hsize_t, 5> extent{};
  const int rank = H5Sget_simple_extent_dims(whole.get(), extent.data(), nullptr);
  std::array<hsize_t, 5> begin{};
  begin[0] = first;
  extent[0] = count;
  check(H5Sselect_hyperslab(whole.get(), H5S_SELECT_SET, begin.data(), nullptr, extent.data(), nullptr));
  const SpaceId memory(check(H5Screate_simple(rank, extent.data(), nullptr)));
  check(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, memory.get(), whole.get(), H5P_DEFAULT, values.data()));
}

float PredictionFile::State::physical(float value, std::size_t channel) const {
  const double y = value * units.normalisation.y_std[channel] + units.normalisation.y_mean[channel];
  if (!units.field_target || !units.target_transformed || objective.name() == LossName::gaussian)
    return static_cast<float>(y);
  if (units.transform.name == TransformName::log)
    return static_cast<float>(std::exp(y) - units.transform.offset);
  if (units.transform.name == TransformName::log1p) return static_cast<float>(std::expm1(y));
  return static_cast<float>(y);
}

void PredictionFile::State::write_classes(std::size_t first, std::size_t count,
                                          std::span<const float> outputs) const {
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
  write_rows(prediction, first, count, likeliest);
  write_rows(probability, first, count, shares);
}

void PredictionFile::State::write_numbers(std::size_t first, std::size_t count,
                                          std::span<const float> outputs) const {
  const bool gaussian = objective.name() == LossName::gaussian;
  const std::size_t values = targets() * cells();
  const std::size_t channels = gaussian ? 2 * values : values;
  std::vector<float> means(count * values);
  std::vector<float> deviations(gaussian ? means.size() : 0);
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t i = 0; i < values; ++i) {
      means[n * values + i] = physical(outputs[n * channels + i], i / cells());
      if (!gaussian) continue;
      const double half_logarithm = 0.5 * outputs[n * channels + values + i];
      deviations[n * values + i] =
          static_cast<float>(std::exp(half_logarithm) * units.normalisation.y_std[i / cells()]);
    }
  }
  write_rows(prediction, first, count, means);
  if (gaussian) write_rows(deviation, first, count, deviations);
}

PredictionFile::PredictionFile(const std::filesystem::path& target, const Objective& objective,
                               const ExportedUnits& units, const PredictionFileDescription& description,
                               std::span<const std::int64_t> ids)
    : state_(new State{DurableFile(target), target, objective, units, description, ids.size()}) {
  state_->create(ids);
}

PredictionFile::~PredictionFile() {
  const Hdf5Section section;
  for (DatasetId* dataset : {&state_->truth, &state_->prediction, &state_->deviation, &state_->probability})
    dataset->close();
  state_->file.close();
}

void PredictionFile::write(std::size_t first, std::span<const float> truths, std::span<const float> outputs) {
  const std::size_t count = truths.size() / state_->objective.truth_count();
  WFLOW_CHECK(outputs.size() == count * state_->objective.output_count() && first + count <= state_->rows);
  const Hdf5Section section;
  std::vector<float> physical(truths.begin(), truths.end());
  if (!state_->classes()) {
    for (std::size_t i = 0; i < physical.size(); ++i)
      physical[i] = state_->physical(physical[i], i / state_->cells() % state_->targets());
  }
  state_->write_rows(state_->truth, first, count, physical);
  if (state_->classes()) {
    state_->write_classes(first, count, outputs);
  } else {
    state_->write_numbers(first, count, outputs);
  }
}

void PredictionFile::publish() {
  {
    const Hdf5Section section;
    for (DatasetId* dataset : {&state_->truth, &state_->prediction, &state_->deviation, &state_->probability})
      if (dataset->close() < 0) state_->check(-1);
    if (state_->file.close() < 0) state_->check(-1);
  }
  state_->durable.publish();
}

}  // namespace wflow::trainer
