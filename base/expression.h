// SPDX-License-Identifier: Apache-2.0
// Expressions over named values: when: of a study and --where of `wflow tasks` are two dialects of one
// grammar.
//
//   expression = term { "or" term }        term = factor { "and" factor }
//   factor     = "not" factor | "(" expression ")" | operand [comparison]
//   comparison = (== != < <= > >= or =) operand | ["not"] "in" "[" operand, ... "]"
//   operand    = word | 'text' | "text"
//
// A list may be in round brackets, too. The user of this class defines what an operand means and how two
// operands compare: an expression knows only their indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace wflow {

class ExpressionError : public std::runtime_error {
 public:
  ExpressionError(std::size_t place, const std::string& message)
      : std::runtime_error(message), offset(place) {}
  std::size_t offset;  // into the expression's text
};

// A truth value of SQL: a comparison with an unknown value is neither true nor false.
enum class Truth : std::uint8_t { no, unknown, yes };

constexpr Truth negated(Truth truth) {
  return truth == Truth::unknown ? truth : truth == Truth::yes ? Truth::no : Truth::yes;
}

class Expression {
 public:
  // The differences between the dialects: which words exist, and the texts of errors.
  struct Dialect {
    // The end of the word that begins at `begin`; `begin` if there is no word.
    std::size_t (*word_end)(std::string_view text, std::size_t begin);
    bool left_is_name;  // the left operand is neither a number nor quoted, and needs a comparison
    const char* expected_left;
    const char* expected_right;
    const char* expected_sign;  // if `left_is_name`
    const char* expected_list;
    const char* expected_end;
    const char* expected_depth;
  };
  struct Operand {
    std::string text;  // without quotes
    bool quoted = false;
    std::size_t offset = 0;
  };
  enum class Kind : std::uint8_t {
    all,
    any,
    no,
    truth,  // an operand without a comparison
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
    std::vector<Node> parts;  // all, any, no
    std::vector<std::size_t>
        operands;  // indices of a comparison's operands; for in and not_in the list follows
  };

  // Throws ExpressionError with the place and the expected text.
  Expression(std::string_view text, const Dialect& dialect);

  const std::vector<Operand>& operands() const { return operands_; }
  const Node& root() const { return root_; }

  // compare(kind, left, right) returns the Truth of one comparison of two operands by their indices. Its kind
  // is truth (then left == right), equal, unequal, less, less_equal, greater or greater_equal. Evaluation
  // stops as soon as the result is certain.
  template <typename Compare>
  Truth evaluate(const Compare& compare) const {
    return evaluate(root_, compare);
  }

 private:
  template <typename Compare>
  static Truth evaluate(const Node& node, const Compare& compare) {
    // The value of parts joined by and (or): a no (yes) decides; otherwise one unknown part makes it unknown.
    const auto join = [](Truth decides, std::size_t count, const auto& part) {
      Truth result = negated(decides);
      for (std::size_t i = 0; i < count; ++i) {
        const Truth truth = part(i);
        if (truth == decides) return truth;
        if (truth == Truth::unknown) result = truth;
      }
      return result;
    };
    switch (node.kind) {
      case Kind::all:
      case Kind::any:
        return join(node.kind == Kind::all ? Truth::no : Truth::yes, node.parts.size(),
                    [&](std::size_t i) { return evaluate(node.parts[i], compare); });
      case Kind::no:
        return negated(evaluate(node.parts.front(), compare));
      case Kind::in:
      case Kind::not_in: {
        const Truth found = join(Truth::yes, node.operands.size() - 1, [&](std::size_t i) {
          return compare(Kind::equal, node.operands.front(), node.operands[i + 1]);
        });
        return node.kind == Kind::in ? found : negated(found);
      }
      default:
        return compare(node.kind, node.operands.front(), node.operands.back());
    }
  }

  std::vector<Operand> operands_;
  Node root_;
};

// "==", "<" and so on, for kinds that compare two operands.
std::string_view sign_of(Expression::Kind kind);

// True if the comparison `kind` holds for `a` and `b`, which have an order.
template <typename T>
bool compares(Expression::Kind kind, const T& a, const T& b) {
  switch (kind) {
    case Expression::Kind::equal:
      return a == b;
    case Expression::Kind::unequal:
      return a != b;
    case Expression::Kind::less:
      return a < b;
    case Expression::Kind::less_equal:
      return a <= b;
    case Expression::Kind::greater:
      return a > b;
    default:
      return a >= b;
  }
}

}  // namespace wflow
