// SPDX-License-Identifier: Apache-2.0
// In place of model_export.cc and exported_model.cc in a build without libtorch.
#include "trainer/model/exported_model.h"
#include "trainer/model/model_export.h"
#include "trainer/model/network.h"

namespace wflow::trainer {

void export_model(const ModelGraph& /*graph*/, const FlatState& /*state*/, const ExportedUnits& /*units*/,
                  const std::string& path) {
  needs_torch("the TorchScript file " + path);
}

void export_ensemble(const std::vector<std::filesystem::path>& /*members*/,
                     std::span<const LossConfig> /*losses*/, const std::filesystem::path& path) {
  needs_torch("the TorchScript file " + path.string());
}

struct ExportedModel::State {};
ExportedModel::ExportedModel(const std::filesystem::path& file) {
  needs_torch("the TorchScript file " + file.string());
}
ExportedModel::~ExportedModel() = default;

namespace {

const std::vector<std::string> kNoNames;
const std::vector<std::vector<std::string>> kNoColumns;
const std::vector<ExportedModel::Head> kNoHeads;
const std::vector<std::vector<std::int64_t>> kNoShapes;
const std::vector<std::vector<double>> kNoRanges;
const std::vector<MetricConfig> kNoMetrics;

}  // namespace

// There is no object: its constructor throws.
const std::vector<std::string>& ExportedModel::inputs() const {
  return kNoNames;
}
const std::vector<std::string>& ExportedModel::random_inputs() const {
  return kNoNames;
}
const std::vector<std::vector<std::string>>& ExportedModel::columns() const {
  return kNoColumns;
}
const std::vector<std::string>& ExportedModel::targets() const {
  return kNoNames;
}
const std::vector<ExportedModel::Head>& ExportedModel::heads() const {
  return kNoHeads;
}
const std::vector<std::vector<std::int64_t>>& ExportedModel::shapes() const {
  return kNoShapes;
}
const std::vector<std::vector<double>>& ExportedModel::ranges() const {
  return kNoRanges;
}
const std::vector<MetricConfig>& ExportedModel::metrics() const {
  return kNoMetrics;
}
std::vector<ModelArray> ExportedModel::run(std::span<const ModelArray> /*inputs*/) {
  return {};
}
std::vector<ModelArray> ExportedModel::gradients(std::span<const ModelArray> /*inputs*/, std::size_t /*head*/,
                                                 std::size_t /*first*/, std::size_t /*count*/) {
  return {};
}
ModelArray ExportedModel::run_layer(std::span<const ModelArray> /*inputs*/, const std::string& /*layer*/) {
  return {};
}

}  // namespace wflow::trainer
