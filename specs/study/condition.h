// SPDX-License-Identifier: Apache-2.0
// The expressions of when: whether a step exists for a combination of parameters.
//
//   expression = term { "or" term }        term = factor { "and" factor }
//   factor     = "not" factor | "(" expression ")" | operand [comparison]
//   comparison = (== != < <= > >= or =) operand | ["not"] "in" "[" operand, ... "]"
//   operand    = number | word | 'text' | "text"
//
// A word that is the name of a parameter or a variable stands for its value, any other for itself; $(NAME)
// may stand in words and texts. Two numbers compare as numbers and two of true, yes, on, false, no, off as
// truth values, quoted or not; all else as text, which has no order. An operand without a comparison must be
// a truth value.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::specs {

class ConditionError : public std::runtime_error {
 public:
  ConditionError(std::size_t place, const std::string& message)
      : std::runtime_error(message), offset(place) {}
  std::size_t offset;  // into the expression's text
};

// A text, and what it is as a number and as a truth value.
struct ConditionValue {
  explicit ConditionValue(std::string value);
  std::string text;
  std::optional<double> number;
  std::optional<bool> truth;
};

class Condition {
 public:
  struct Operand {
    std::string text;  // without quotes
    bool quoted = false;
    std::size_t offset = 0;
  };
  // The value of operands()[index].
  using Values = std::function<const ConditionValue&(std::size_t index)>;
  using IsName = std::function<bool(std::string_view)>;

  // Throws ConditionError with the place and what was expected there.
  explicit Condition(std::string_view text);

  const std::vector<Operand>& operands() const { return operands_; }

  // Tokens that name nothing, and comparisons that hold no name at all: 'SIZ > 3' is a slip. `known` are
  // names to suggest.
  std::vector<ConditionError> check(const IsName& is_name, const std::vector<std::string>& known) const;

  // Throws ConditionError where an operand is no number or no truth value and must be.
  bool holds(const Values& values) const;

 private:
  enum class Kind {
    all,
    any,
    no,
    truth,
    equal,
    unequal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    not_in
  };
  struct Node {
    Kind kind = Kind::truth;
    std::vector<Node> parts;            // all, any, no
    std::vector<std::size_t> operands;  // of a comparison, indices
  };
  class Parser;

  bool holds(const Node& node, const Values& values) const;
  double number(std::size_t operand, const Values& values, std::string_view sign) const;
  void check(const Node& node, const IsName& is_name, const std::vector<std::string>& known,
             std::vector<ConditionError>& errors) const;

  std::vector<Operand> operands_;
  Node root_;
};

}  // namespace wflow::specs
