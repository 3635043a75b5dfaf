// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/formula_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

TargetFormula::TargetFormula(Formula formula, const std::vector<std::string>& labels, std::string_view what)
    : formula_(std::move(formula)), targets_(labels.size()) {
  for (const std::string& name : formula_.names()) {
    const std::size_t dot = name.find('.');
    Name& found = names_.emplace_back(Name{name.starts_with("prediction")});
    if (dot == std::string::npos) continue;
    joint_ = true;
    const auto label = std::ranges::find(labels, name.substr(dot + 1));
    if (label == labels.end())
      throw CommonError(ExitCode::spec, fmt::format("the formula of {} has '{}', and the targets are {}",
                                                    what, name, text::join(labels, ", ")));
    found.target = static_cast<std::size_t>(label - labels.begin());
  }
}

bool TargetFormula::fits(const Formula& formula, std::span<const std::string> labels) {
  return std::ranges::all_of(formula.names(), [&](const std::string& name) {
    const std::size_t dot = name.find('.');
    return dot == std::string::npos || std::ranges::find(labels, name.substr(dot + 1)) != labels.end();
  });
}

std::optional<double> TargetFormula::value(std::span<const double> predictions,
                                           std::span<const double> truths, std::size_t place,
                                           Memory& memory) const {
  memory.values.resize(names_.size());
  memory.slopes.resize(names_.size());
  for (std::size_t k = 0; k < names_.size(); ++k) {
    const std::size_t at = place_of(names_[k], place, truths.size());
    if (std::isnan(truths[at])) return std::nullopt;
    memory.values[k] = names_[k].is_prediction ? predictions[at] : truths[at];
  }
  return formula_.evaluate(memory.values, memory.slopes, memory.scratch);
}

void TargetFormula::add_slopes(std::size_t place, const Memory& memory, double factor,
                               std::span<float> gradient) const {
  for (std::size_t k = 0; k < names_.size(); ++k)
    if (names_[k].is_prediction)
      gradient[place_of(names_[k], place, gradient.size())] += static_cast<float>(factor * memory.slopes[k]);
}

FormulaLoss::FormulaLoss(const std::string& formula, const std::vector<std::string>& labels)
    : formula_(target_formula(formula, "loss"), labels, "the loss") {}

double FormulaLoss::evaluate(std::span<const float> outputs, std::span<const float> truths, double scale,
                             std::span<float> gradient) const {
  const std::vector<double> predicted(outputs.begin(), outputs.end());
  const std::vector<double> wanted(truths.begin(), truths.end());
  const double weight = formula_.is_joint() ? static_cast<double>(formula_.targets()) : 1;
  TargetFormula::Memory memory;
  std::ranges::fill(gradient, 0.0F);
  double sum = 0;
  for (std::size_t place = 0; place < formula_.places(truths.size()); ++place) {
    const std::optional<double> value = formula_.value(predicted, wanted, place, memory);
    if (!value) continue;
    sum += weight * *value;
    formula_.add_slopes(place, memory, scale * weight, gradient);
  }
  return sum;
}

UserMetric::UserMetric(const MetricConfig& metric, const std::vector<std::string>& labels,
                       const ModuleScores& modules, std::vector<std::int64_t> shape)
    : name_(metric.name), shape_(std::move(shape)) {
  if (metric.file.empty()) {
    formula_.emplace(target_formula(metric.formula, "metric"), labels, fmt::format("the metric '{}'", name_));
  } else if (const auto module = modules.find(metric.file); module != modules.end()) {
    module_ = module->second;
  }
}

std::optional<double> UserMetric::mean_of(double sum, double count) {
  return count > 0 && std::isfinite(sum) ? std::optional(sum / count) : std::nullopt;
}

void UserMetric::record(std::span<const double> predictions, std::span<const double> truths,
                        std::vector<double>& records) const {
  formula_ ? record_formula(predictions, truths, records) : record_module(predictions, truths, records);
}

// Without the truth of a target there is no value.
void UserMetric::record_module(std::span<const double> predictions, std::span<const double> truths,
                               std::vector<double>& records) const {
  WFLOW_CHECK(module_ != nullptr);
  if (std::ranges::all_of(truths, [](double t) { return std::isnan(t); })) {
    records.insert(records.end(), {0, 0});
    return;
  }
  const std::vector<float> y(predictions.begin(), predictions.end());
  const std::vector<float> t(truths.begin(), truths.end());
  records.insert(records.end(), {module_->score(y, t, shape_, {}), 1});
}

void UserMetric::record_formula(std::span<const double> predictions, std::span<const double> truths,
                                std::vector<double>& records) const {
  TargetFormula::Memory memory;
  const std::size_t values = formula_->places(truths.size()) / means();
  for (std::size_t mean = 0; mean < means(); ++mean) {
    double sum = 0;
    double count = 0;
    for (std::size_t i = 0; i < values; ++i) {
      const std::optional<double> value = formula_->value(predictions, truths, mean * values + i, memory);
      if (!value) continue;
      sum += *value;
      ++count;
    }
    records.insert(records.end(), {sum, count});
  }
}

}  // namespace wflow::trainer
