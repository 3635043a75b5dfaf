// SPDX-License-Identifier: Apache-2.0
// Arithmetic in a configuration: `transform: {expression: log(x + 0.1)}`, `drop_if: max(u) > 1e4`. Operators,
// loosest first: or, and, not, < <= > >= == !=, + -, * / %, unary -, ^ (from the right). Truth is 1 and 0.
// Everything is computed in double precision.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::converters {

class Formula {
 public:
  // Error{spec} with a sentence if the text is not a formula.
  static Formula parse(std::string_view text);

  // The variables for which the caller must give values, each once: names, and reductions of a name such as
  // `mean(u)`.
  const std::vector<std::string>& variables() const { return variables_; }

  // `values`: for each variable as many numbers as `result` has, or one for all. Reads and writes `result` in
  // order, so that it may be one of the values.
  void evaluate(std::span<const std::span<const double>> values, std::span<double> result) const;

 private:
  friend class FormulaParser;
  struct Operation;
  static std::span<const Operation> operations();
  struct Step {
    const Operation* operation = nullptr;  // null: a number, or a variable
    double number = 0;
    std::size_t variable = 0;
    bool is_variable = false;
  };

  std::vector<Step> steps_;  // in reverse Polish notation
  std::vector<std::string> variables_;
  std::size_t depth_ = 0;  // depth of the stack
};

// The reductions that formulas know: min, max, mean, sum, std of one name.
double reduce(std::string_view function, std::span<const double> values);

// "mean(u)" as {"mean", "u"}; for a plain name the function is empty.
struct VariableName {
  std::string function;
  std::string name;
};
VariableName split_variable(const std::string& variable);

}  // namespace wflow::converters
