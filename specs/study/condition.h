// SPDX-License-Identifier: Apache-2.0
// The expressions of when: (base/expression.h), which decide whether a step exists for a combination of
// parameters.
//
// A word that is the name of a parameter or a variable means its value, any other word means itself; words
// and texts may contain $(NAME). Two numbers compare as numbers and two of true, yes, on, false, no, off as
// truth values, quoted or not; all else as text, which has no order. An operand without a comparison must be
// a truth value.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/expression.h"

namespace wflow::specs {

using ConditionError = ExpressionError;

// A text, and its value as a number and as a truth value.
struct ConditionValue {
  explicit ConditionValue(std::string value);
  std::string text;
  std::optional<double> number;
  std::optional<bool> truth;
};

class Condition {
 public:
  using Operand = Expression::Operand;
  // The value of operands()[index].
  using Values = std::function<const ConditionValue&(std::size_t index)>;
  using IsName = std::function<bool(std::string_view)>;

  // Throws ConditionError with the place and the expected text.
  explicit Condition(std::string_view text);

  const std::vector<Operand>& operands() const { return expression_.operands(); }

  // Finds tokens of unknown names, and comparisons without any name: 'SIZ > 3' is a typing error. `known`:
  // names to suggest.
  std::vector<ConditionError> check(const IsName& is_name, const std::vector<std::string>& known) const;

  // Throws ConditionError if an operand must be a number or a truth value and is not.
  bool holds(const Values& values) const;

 private:
  double number(std::size_t operand, const Values& values, std::string_view sign) const;
  bool truth(std::size_t operand, const Values& values) const;
  void check(const Expression::Node& node, const IsName& is_name, const std::vector<std::string>& known,
             std::vector<ConditionError>& errors) const;

  Expression expression_;
};

}  // namespace wflow::specs
