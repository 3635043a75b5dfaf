// SPDX-License-Identifier: Apache-2.0
// Arithmetic over named numbers, with derivatives: the losses and metrics that a user writes.
//
//   sum     = product { ("+" | "-") product }
//   product = sign { ("*" | "/") sign }
//   sign    = ["-"] power                        power = value ["^" sign]
//   value   = number | name | function "(" sum [ "," sum ] ")" | "(" sum ")"
//
// Functions: abs, sqrt, exp, log, tanh, min, max. A name may have parts: `target.mass`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/expression.h"

namespace wflow::trainer {

class Formula {
 public:
  // Throws ExpressionError with the place and what is expected there.
  explicit Formula(std::string_view text);

  // In the order in which they appear first.
  const std::vector<std::string>& names() const { return names_; }

  // Memory of an evaluation.
  struct Scratch {
    std::vector<double> values;
    std::vector<double> slopes;
  };
  // `values`: of the names, in their order; `slopes` receives the derivative by each. At a corner (abs, min,
  // max) it is that of one side, and 0 for abs.
  double evaluate(std::span<const double> values, std::span<double> slopes, Scratch& scratch) const;

 private:
  enum class Operation : std::uint8_t {
    number,
    name,
    add,
    subtract,
    multiply,
    divide,
    power,
    negate,
    absolute,
    root,
    exponential,
    logarithm,
    hyperbolic_tangent,
    least,
    most
  };
  // A node's operands come before it.
  struct Node {
    Operation operation = Operation::number;
    std::size_t left = 0;  // or the index of the name
    std::size_t right = 0;
    double number = 0;
  };
  class Parser;

  static double value_of(const Node& node, double left, double right);
  // Adds `slope` times the derivatives of a node to those of its operands.
  static void pass_slope(const Node& node, std::span<const double> values, double value, double slope,
                         std::span<double> slopes);

  std::vector<std::string> names_;
  std::vector<Node> nodes_;  // the last one is the result
};

// The names that a loss or a metric may use: `prediction` and `target` of each value by itself, or
// `prediction.NAME` and `target.NAME` of all targets of a sample or cell together. `what`: "loss", for
// messages. Throws ExpressionError.
Formula target_formula(std::string_view text, std::string_view what);

}  // namespace wflow::trainer
