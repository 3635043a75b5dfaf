// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/formula_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace wflow::trainer {

FormulaLoss::FormulaLoss(const std::string& formula, const std::vector<std::string>& labels)
    : formula_(loss_formula(formula)), targets_(labels.size()) {
  for (const std::string& name : formula_.names()) {
    const std::size_t dot = name.find('.');
    Name& found = names_.emplace_back(Name{name.starts_with("prediction")});
    if (dot == std::string::npos) continue;
    joint_ = true;
    const auto label = std::ranges::find(labels, name.substr(dot + 1));
    if (label == labels.end())
      throw Error(ExitCode::spec, fmt::format("the formula of the loss has '{}', and the targets are {}",
                                              name, text::join(labels, ", ")));
    found.target = static_cast<std::size_t>(label - labels.begin());
  }
}

double FormulaLoss::evaluate(std::span<const float> outputs, std::span<const float> truths, double scale,
                             std::span<float> gradient) const {
  const std::size_t cells = truths.size() / targets_;
  const double weight = joint_ ? static_cast<double>(targets_) : 1;
  Formula::Scratch scratch;
  std::vector<double> values(names_.size());
  std::vector<double> slopes(names_.size());
  std::ranges::fill(gradient, 0.0F);
  double sum = 0;
  for (std::size_t value = 0; value < (joint_ ? cells : truths.size()); ++value) {
    const auto place = [&](const Name& name) { return joint_ ? name.target * cells + value : value; };
    bool counts = true;
    for (std::size_t k = 0; k < names_.size(); ++k) {
      const std::size_t at = place(names_[k]);
      values[k] = names_[k].is_prediction ? outputs[at] : truths[at];
      counts = counts && !std::isnan(truths[at]);
    }
    if (!counts) continue;
    sum += weight * formula_.evaluate(values, slopes, scratch);
    for (std::size_t k = 0; k < names_.size(); ++k)
      if (names_[k].is_prediction)
        gradient[place(names_[k])] = static_cast<float>(scale * weight * slopes[k]);
  }
  return sum;
}

}  // namespace wflow::trainer
