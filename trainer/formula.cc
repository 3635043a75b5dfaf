// SPDX-License-Identifier: Apache-2.0
#include "trainer/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kMostDepth = 100;

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

}  // namespace

class Formula::Parser {
 public:
  Parser(std::string_view text, Formula& formula) : text_(text), formula_(formula) {}

  void run() {
    sum();
    skip_blanks();
    if (at_ < text_.size()) fail("an operator (+ - * / ^) or the end of the formula is expected here");
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw ExpressionError(at_, message); }

  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("'{}' is expected here", c));
  }
  std::size_t add(Operation operation, std::size_t left, std::size_t right = 0, double number = 0) {
    formula_.nodes_.push_back({operation, left, right, number});
    return formula_.nodes_.size() - 1;
  }

  std::size_t sum() {
    if (++depth_ > kMostDepth) fail("the formula has too many parentheses");
    std::size_t left = product();
    while (true) {
      if (take('+')) {
        left = add(Operation::add, left, product());
      } else if (take('-')) {
        left = add(Operation::subtract, left, product());
      } else {
        --depth_;
        return left;
      }
    }
  }
  std::size_t product() {
    std::size_t left = sign();
    while (true) {
      if (take('*')) {
        left = add(Operation::multiply, left, sign());
      } else if (take('/')) {
        left = add(Operation::divide, left, sign());
      } else {
        return left;
      }
    }
  }
  std::size_t sign() {
    if (++depth_ > kMostDepth) fail("the formula has too many signs or powers in a row");
    const std::size_t node = take('-') ? add(Operation::negate, sign()) : power();
    --depth_;
    return node;
  }
  std::size_t power() {
    const std::size_t base = value();
    return take('^') ? add(Operation::power, base, sign()) : base;
  }
  std::size_t value() {
    if (take('(')) {
      const std::size_t inner = sum();
      expect(')');
      return inner;
    }
    if (at_ < text_.size() &&
        (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.'))
      return number();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
    if (at_ == begin) fail("a number, a name or '(' is expected here");
    const std::string word(text_.substr(begin, at_ - begin));
    return take('(') ? call(word, begin) : name(word);
  }
  std::size_t number() {
    std::size_t end = at_;
    const auto digits = [&] {
      while (end < text_.size() &&
             (std::isdigit(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '.'))
        ++end;
    };
    digits();
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      ++end;
      if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
      digits();
    }
    const std::optional<double> number = text::to_real(text_.substr(at_, end - at_));
    if (!number) fail("this is no number");
    at_ = end;
    return add(Operation::number, 0, 0, *number);
  }
  std::size_t name(const std::string& word) {
    std::vector<std::string>& names = formula_.names_;
    const auto found = std::ranges::find(names, word);
    const auto index = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) names.push_back(word);
    return add(Operation::name, index);
  }
  std::size_t call(const std::string& word, std::size_t begin) {
    struct Function {
      const char* name;
      Operation operation;
      bool two;
    };
    static constexpr std::array<Function, 7> kFunctions = {{{"abs", Operation::absolute, false},
                                                            {"sqrt", Operation::root, false},
                                                            {"exp", Operation::exponential, false},
                                                            {"log", Operation::logarithm, false},
                                                            {"tanh", Operation::hyperbolic_tangent, false},
                                                            {"min", Operation::least, true},
                                                            {"max", Operation::most, true}}};
    const auto* function = std::ranges::find(kFunctions, word, &Function::name);
    if (function == kFunctions.end()) {
      at_ = begin;
      fail(fmt::format("'{}' is no function: abs, sqrt, exp, log, tanh, min, max", word));
    }
    const std::size_t left = sum();
    std::size_t right = 0;
    if (function->two) {
      expect(',');
      right = sum();
    }
    expect(')');
    return add(function->operation, left, right);
  }

  std::string_view text_;
  Formula& formula_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
};

Formula::Formula(std::string_view text) {
  Parser(text, *this).run();
}

double Formula::value_of(const Node& node, double left, double right) {
  switch (node.operation) {
    case Operation::number:
    case Operation::name:
      break;
    case Operation::add:
      return left + right;
    case Operation::subtract:
      return left - right;
    case Operation::multiply:
      return left * right;
    case Operation::divide:
      return left / right;
    case Operation::power:
      return std::pow(left, right);
    case Operation::negate:
      return -left;
    case Operation::absolute:
      return std::abs(left);
    case Operation::root:
      return std::sqrt(left);
    case Operation::exponential:
      return std::exp(left);
    case Operation::logarithm:
      return std::log(left);
    case Operation::hyperbolic_tangent:
      return std::tanh(left);
    case Operation::least:
      return std::min(left, right);
    case Operation::most:
      return std::max(left, right);
  }
  return node.number;
}

void Formula::pass_slope(const Node& node, std::span<const double> values, double value, double slope,
                         std::span<double> slopes) {
  const double left = values[node.left];
  const double right = values[node.right];
  double& to_left = slopes[node.left];
  double& to_right = slopes[node.right];
  switch (node.operation) {
    case Operation::number:
    case Operation::name:
      return;
    case Operation::add:
      to_left += slope;
      to_right += slope;
      return;
    case Operation::subtract:
      to_left += slope;
      to_right -= slope;
      return;
    case Operation::multiply:
      to_left += slope * right;
      to_right += slope * left;
      return;
    case Operation::divide:
      to_left += slope / right;
      to_right -= slope * value / right;
      return;
    case Operation::power:
      if (right != 0) to_left += slope * right * std::pow(left, right - 1);
      if (left > 0) to_right += slope * value * std::log(left);
      return;
    case Operation::negate:
      to_left -= slope;
      return;
    case Operation::absolute:
      to_left += left > 0 ? slope : left < 0 ? -slope : 0;
      return;
    case Operation::root:
      to_left += slope / (2 * value);
      return;
    case Operation::exponential:
      to_left += slope * value;
      return;
    case Operation::logarithm:
      to_left += slope / left;
      return;
    case Operation::hyperbolic_tangent:
      to_left += slope * (1 - value * value);
      return;
    case Operation::least:
      (left <= right ? to_left : to_right) += slope;
      return;
    case Operation::most:
      (left >= right ? to_left : to_right) += slope;
      return;
  }
}

// Backward from the result: one pass gives the derivatives by all names.
double Formula::evaluate(std::span<const double> values, std::span<double> slopes, Scratch& scratch) const {
  std::vector<double>& all = scratch.values;
  all.resize(nodes_.size());
  scratch.slopes.assign(nodes_.size(), 0.0);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    all[i] = node.operation == Operation::name     ? values[node.left]
             : node.operation == Operation::number ? node.number
                                                   : value_of(node, all[node.left], all[node.right]);
  }
  std::ranges::fill(slopes, 0.0);
  scratch.slopes.back() = 1;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    const double slope = scratch.slopes[i];
    if (slope == 0) continue;
    if (node.operation == Operation::name) {
      slopes[node.left] += slope;
    } else if (node.operation != Operation::number) {
      pass_slope(node, all, all[i], slope, scratch.slopes);
    }
  }
  return all.back();
}

Formula target_formula(std::string_view text, std::string_view what) {
  Formula formula(text);
  bool predicts = false;
  bool plain = false;
  bool named = false;
  for (const std::string& name : formula.names()) {
    const std::string_view role = std::string_view(name).substr(0, name.find('.'));
    if (role != "prediction" && role != "target")
      throw ExpressionError(text.find(name),
                            fmt::format("'{}' is unknown: a {} is of 'prediction' and 'target', or of "
                                        "'prediction.NAME' and 'target.NAME'",
                                        name, what));
    predicts = predicts || role == "prediction";
    (role.size() == name.size() ? plain : named) = true;
  }
  if (!predicts) throw ExpressionError(0, fmt::format("the {} does not depend on the prediction", what));
  if (plain && named)
    throw ExpressionError(0, fmt::format("a {} is either of each 'prediction' by itself, or of targets with "
                                         "their names: 'prediction.NAME'",
                                         what));
  return formula;
}

}  // namespace wflow::trainer
