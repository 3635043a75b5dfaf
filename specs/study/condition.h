// SPDX-License-Identifier: Apache-2.0
// The expressions of when: (base/expression.h), which say whether a step exists for a combination of
// parameters.
//
// A word that is the name of a parameter or a variable stands for its value, any other for itself; $(NAME)
// may stand in words and texts. Two numbers compare as numbers and two of true, yes, on, false, no, off as
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

// A text, and what it is as a number and as a truth value.
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

  // Throws ConditionError with the place and what was expected there.
  explicit Condition(std::string_view text);

  const std::vector<Operand>& operands() const { return expression_.operands(); }

  // Tokens that name nothing, and comparisons that hold no name at all: 'SIZ > 3' is a slip. `known` are
  // names to suggest.
  std::vector<ConditionError> check(const IsName& is_name, const std::vector<std::string>& known) const;

  // Throws ConditionError where an operand is no number or no truth value and must be.
  bool holds(const Values& values) const;

 private:
  double number(std::size_t operand, const Values& values, std::string_view sign) const;
  bool truth(std::size_t operand, const Values& values) const;
  void check(const Expression::Node& node, const IsName& is_name, const std::vector<std::string>& known,
             std::vector<ConditionError>& errors) const;

  Expression expression_;
};

}  // namespace wflow::specs
