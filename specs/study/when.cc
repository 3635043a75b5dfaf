// SPDX-License-Identifier: Apache-2.0
#include "specs/study/when.h"

#include <algorithm>

#include "base/text.h"
#include "specs/plan/expansion.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

WhenConditions::WhenConditions(const Study& study) : study_(study), steps_(study.steps.size()) {
  for (const Parameter& parameter : study.parameters) parameters_.emplace(parameter.name, &parameter);
  for (const auto& [name, value] : study.labels) constants_.emplace(name, value);
  for (const auto& [name, value] : study.variables) constants_.emplace(name, value);
  for (const auto& [name, value] : study.variables) constants_.emplace(upper(name), value);
  for (std::size_t i = 0; i < study.steps.size(); ++i) {
    if (study.steps[i].when.empty()) continue;
    try {
      steps_[i].emplace(Bound{Condition(study.steps[i].when), {}});
    } catch (const ConditionError&) {  // NOLINT(bugprone-empty-catch): check_conditions() reports it
    }
  }
}

bool WhenConditions::is_name(std::string_view name) const {
  return constants_.contains(name) || parameters_.contains(name) || parameters_.contains(parameter_of(name));
}

std::vector<std::string> WhenConditions::names() const {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : parameters_) names.push_back(name);
  for (const auto& [name, value] : constants_) names.push_back(name);
  return names;
}

std::string WhenConditions::with_tokens(const Condition::Operand& operand) const {
  return !operand.quoted && is_name(operand.text) ? "$(" + operand.text + ")" : operand.text;
}

std::string WhenConditions::tokens(std::size_t step) const {
  std::string tokens;
  if (!has(step)) return tokens;
  for (const Condition::Operand& operand : steps_[step]->condition.operands())
    tokens += with_tokens(operand) + " ";
  return tokens;
}

const WhenConditions::Column& WhenConditions::column(const std::string& text) {
  const auto [at, fresh] = columns_.try_emplace(text);
  if (!fresh) return at->second;
  bool varies = false;
  const auto value = [&](std::uint32_t row) {
    return ConditionValue(replace_tokens(
        std::string_view(text),
        [&](std::string_view name) -> std::optional<std::string> {
          if (const auto constant = constants_.find(name); constant != constants_.end())
            return std::string(constant->second);
          const auto parameter = parameters_.find(parameters_.contains(name) ? name : parameter_of(name));
          if (parameter == parameters_.end()) return std::nullopt;
          varies = true;
          return parameter_text(*parameter->second, name, row);
        },
        kTokenLevels));
  };
  at->second.push_back(value(0));
  const std::size_t rows = study_.parameters.empty() || !varies ? 1 : study_.parameters.front().values.size();
  at->second.reserve(rows);
  for (std::uint32_t row = 1; row < rows; ++row) at->second.push_back(value(row));
  return at->second;
}

bool WhenConditions::holds(std::size_t step, std::uint32_t row) {
  if (!has(step)) return true;
  Bound& bound = *steps_[step];
  if (bound.failed) return false;
  if (bound.columns.empty()) {
    for (const Condition::Operand& operand : bound.condition.operands())
      bound.columns.push_back(&column(with_tokens(operand)));
  }
  try {
    return bound.condition.holds([&](std::size_t operand) -> const ConditionValue& {
      const Column& values = *bound.columns[operand];
      return values[values.size() > 1 ? row : 0];
    });
  } catch (const ConditionError& error) {
    problems_.push_back({step, error});
    bound.failed = true;
    return false;
  }
}

}  // namespace wflow::specs
