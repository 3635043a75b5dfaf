// SPDX-License-Identifier: Apache-2.0
#include "trainer/analysis/surrogate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "trainer/config.h"
#include "trainer/predict/predict.h"
#include "trainer/training/metrics.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kBatch = 1024;  // rows of a forward pass

bool has_classes(const std::string& loss) {
  const std::array names = {LossName::cross_entropy, LossName::dice, LossName::focal};
  return std::ranges::any_of(names, [&](LossName name) { return loss == name_of(name); });
}

// The channels of a head's output that are predictions.
struct Channels {
  std::size_t first = 0;
  std::size_t count = 0;
};

Channels channels_of(const ExportedModel::Head& head, std::size_t all) {
  if (head.loss == name_of(LossName::gaussian)) return {0, all / 2};
  if (head.loss == name_of(LossName::mixture)) return {0, head.targets.size()};
  const std::size_t quantiles = head.quantiles.size();
  if (quantiles == 0 || all % quantiles != 0) return {0, all};
  return {nearest_to_median(head.quantiles) * (all / quantiles), all / quantiles};
}

std::string output_name(const ExportedModel::Head& head, std::size_t channel, std::size_t count) {
  if (has_classes(head.loss) && head.targets.size() == 1)
    return fmt::format("{}={}", head.targets[0], channel);
  if (head.targets.size() == count) return head.targets[channel];
  return fmt::format("{}{}{}", head.name, head.name.empty() ? "output" : "/output", channel);
}

}  // namespace

Surrogate::Surrogate(const std::filesystem::path& file) : model_(open_exported_model(file)) {
  read_inputs(file);
  std::vector<double> centre;
  for (const InputRange& input : inputs_) centre.push_back(input.low + (input.high - input.low) / 2);
  const std::vector<ModelArray> outputs = model_->run(arrays(centre));
  for (std::size_t h = 0; h < outputs.size(); ++h) add_outputs(h, outputs[h]);
  if (outputs_.empty())
    throw Error(ExitCode::data, fmt::format("{} detects objects: it has no output that is a number for each "
                                            "sample, which 'analyze' needs",
                                            file.string()));
}

void Surrogate::read_inputs(const std::filesystem::path& file) {
  const std::vector<std::string>& names = model_->inputs();
  if (names.empty() || model_->ranges().size() != names.size())
    throw Error(ExitCode::data,
                fmt::format("{} does not store the ranges of its inputs, as files of other programs and of "
                            "earlier versions of wflow: analyze a model of this wflow-train",
                            file.string()));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::find(model_->random_inputs(), names[i]) != model_->random_inputs().end())
      throw Error(ExitCode::data, fmt::format("the input '{}' of {} is random numbers: 'analyze' needs a "
                                              "model of parameters alone",
                                              names[i], file.string()));
    const std::vector<double>& range = model_->ranges()[i];
    const std::vector<std::int64_t>& shape = model_->shapes().at(i);
    const auto values = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    const std::vector<std::string>& columns = model_->columns()[i];
    if (shape.empty() || range.size() != 2 * static_cast<std::size_t>(values) ||
        (columns.size() != static_cast<std::size_t>(values) && values > 1))
      throw Error(ExitCode::data, fmt::format("the input '{}' of {} is a field ({} values): 'analyze' needs "
                                              "a model whose inputs are numbers, such as parameters",
                                              names[i], file.string(), values));
    widths_.push_back(static_cast<std::size_t>(values));
    for (std::size_t k = 0; k < widths_.back(); ++k)
      inputs_.push_back({k < columns.size() ? columns[k] : names[i], range[2 * k], range[2 * k + 1]});
  }
}

void Surrogate::add_outputs(std::size_t head, const ModelArray& array) {
  const ExportedModel::Head& of = model_->heads()[head];
  if (of.loss == name_of(LossName::detection)) return;
  const std::size_t all = array.shape.size() > 1 ? static_cast<std::size_t>(array.shape[1]) : 1;
  const std::size_t cells = array.values.size() / all;
  const Channels channels = channels_of(of, all);
  for (std::size_t c = 0; c < channels.count; ++c)
    outputs_.push_back({output_name(of, c, channels.count), head, (channels.first + c) * cells, cells, c});
}

std::vector<std::string> Surrogate::outputs() const {
  std::vector<std::string> names;
  for (const Output& output : outputs_) names.push_back(output.name);
  return names;
}

bool Surrogate::has_fields() const {
  return std::ranges::any_of(outputs_, [](const Output& output) { return output.cells > 1; });
}

std::vector<std::string> Surrogate::targets_in_data(const ExportedModel::Head& head) {
  if (has_classes(head.loss)) return {};
  std::vector<std::string> names;
  for (const std::string& name : head.targets) {
    const bool prefixed = !head.name.empty() && name.starts_with(head.name + "/");
    names.push_back(prefixed ? name.substr(head.name.size() + 1) : name);
  }
  return names;
}

Surrogate::Samples Surrogate::samples(const std::filesystem::path& data) const {
  std::vector<std::vector<std::string>> targets;
  for (const ExportedModel::Head& head : model_->heads()) targets.push_back(targets_in_data(head));
  const auto rows = rows_of_dataset(data, model_->inputs(), targets, "train");
  const std::size_t count = rows->size();
  Samples samples{std::vector<double>(count * inputs_.size()), {}};
  const std::vector<ModelArray> inputs = rows->inputs(0, count);
  std::size_t column = 0;
  for (std::size_t i = 0; i < widths_.size(); ++i) {
    for (std::size_t row = 0; row < count; ++row)
      for (std::size_t k = 0; k < widths_[i]; ++k)
        samples.points[row * inputs_.size() + column + k] = inputs[i].values[row * widths_[i] + k];
    column += widths_[i];
  }
  for (const Output& output : outputs_) {
    std::vector<double>& values = samples.outputs.emplace_back();
    const std::size_t width = model_->heads()[output.head].targets.size();
    if (output.cells > 1 || targets[output.head].empty() || !rows->has_truths(output.head)) continue;
    const std::vector<double> truths = rows->truths(output.head, 0, count);
    if (truths.size() != count * width) continue;
    for (std::size_t row = 0; row < count; ++row) values.push_back(truths[row * width + output.target]);
  }
  return samples;
}

std::vector<ModelArray> Surrogate::arrays(std::span<const double> points) const {
  const std::size_t rows = points.size() / inputs_.size();
  std::vector<ModelArray> arrays;
  std::size_t column = 0;
  for (const std::size_t width : widths_) {
    ModelArray& array = arrays.emplace_back();
    array.shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width)};
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t k = 0; k < width; ++k)
        array.values.push_back(points[row * inputs_.size() + column + k]);
    column += width;
  }
  return arrays;
}

std::vector<std::vector<double>> Surrogate::values(std::span<const double> points) {
  std::vector<std::vector<double>> values(outputs_.size());
  const std::size_t step = kBatch * inputs_.size();
  for (std::size_t at = 0; at < points.size(); at += step) {
    const std::span<const double> part = points.subspan(at, std::min(step, points.size() - at));
    const std::size_t rows = part.size() / inputs_.size();
    const std::vector<ModelArray> heads = model_->run(arrays(part));
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      const Output& output = outputs_[k];
      const std::vector<double>& all = heads[output.head].values;
      for (std::size_t row = 0; row < rows; ++row) {
        const double* first = all.data() + row * (all.size() / rows) + output.first;
        values[k].push_back(std::accumulate(first, first + output.cells, 0.0) /
                            static_cast<double>(output.cells));
      }
    }
  }
  return values;
}

std::vector<double> Surrogate::gradients(std::span<const double> points, std::size_t output) {
  std::vector<double> gradients;
  const std::size_t step = kBatch * inputs_.size();
  for (std::size_t at = 0; at < points.size(); at += step) {
    const std::span<const double> part = points.subspan(at, std::min(step, points.size() - at));
    const Output& of = outputs_[output];
    const std::vector<ModelArray> of_inputs = model_->gradients(arrays(part), of.head, of.first, of.cells);
    for (std::size_t row = 0; row < part.size() / inputs_.size(); ++row)
      for (std::size_t i = 0; i < widths_.size(); ++i)
        for (std::size_t k = 0; k < widths_[i]; ++k)
          gradients.push_back(of_inputs[i].values[row * widths_[i] + k]);
  }
  return gradients;
}

}  // namespace wflow::trainer
