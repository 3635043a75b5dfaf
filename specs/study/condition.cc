// SPDX-License-Identifier: Apache-2.0
#include "specs/study/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

using Kind = Expression::Kind;

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_.-+/:%@~").find(c) != std::string_view::npos;
}

std::size_t word_end(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const auto token = text[at] == '$' ? find_token(text, at) : std::nullopt;
    if (token && token->begin == at) {
      at = token->end;
    } else if (is_word_character(text[at])) {
      ++at;
    } else {
      break;
    }
  }
  return at;
}

constexpr const char* kExpectedOperand = "expected a parameter, a number or a text";
constexpr Expression::Dialect kDialect = {word_end,
                                          false,
                                          kExpectedOperand,
                                          kExpectedOperand,
                                          "",
                                          "expected a list: [a, b]",
                                          "expected a comparison, 'and', 'or' or the end",
                                          "expected fewer parentheses"};

std::optional<bool> truth_of(std::string_view text) {
  const std::string word = text::lower(text);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

bool equal(const ConditionValue& left, const ConditionValue& right) {
  if (left.number && right.number) return *left.number == *right.number;
  if (left.truth && right.truth) return *left.truth == *right.truth;
  return left.text == right.text;
}

}  // namespace

ConditionValue::ConditionValue(std::string value)
    : text(std::move(value)), number(text::to_real(text)), truth(truth_of(text)) {
  if (number && std::isnan(*number)) number.reset();
}

Condition::Condition(std::string_view text) : expression_(text, kDialect) {}

void Condition::check(const Expression::Node& node, const IsName& is_name,
                      const std::vector<std::string>& known, std::vector<ConditionError>& errors) const {
  for (const Expression::Node& part : node.parts) check(part, is_name, known, errors);
  if (node.operands.empty()) return;
  bool named = false;
  const Operand* word = nullptr;  // a word that may be meant as a name
  for (const std::size_t index : node.operands) {
    const Operand& operand = operands()[index];
    for (auto token = find_token(operand.text); token; token = find_token(operand.text, token->end)) {
      named = true;
      if (is_name(token->name)) continue;
      errors.emplace_back(operand.offset + (operand.quoted ? 1 : 0) + token->begin,
                          fmt::format("'$({})' is no parameter and no variable{}", token->name,
                                      text::suggestion(token->name, known)));
    }
    const ConditionValue value(operand.text);
    const bool constant = operand.quoted || value.number || value.truth;
    named = named || (!operand.quoted && is_name(operand.text)) || (node.kind == Kind::truth && value.truth);
    if (!constant && (word == nullptr || text::nearest(operand.text, known))) word = &operand;
  }
  if (named) return;
  const Operand& blamed = word == nullptr ? operands()[node.operands.front()] : *word;
  errors.emplace_back(blamed.offset, fmt::format("'{}' is no parameter and no variable{}", blamed.text,
                                                 text::suggestion(blamed.text, known)));
}

std::vector<ConditionError> Condition::check(const IsName& is_name,
                                             const std::vector<std::string>& known) const {
  std::vector<ConditionError> errors;
  check(expression_.root(), is_name, known, errors);
  return errors;
}

double Condition::number(std::size_t operand, const Values& values, std::string_view sign) const {
  const ConditionValue& value = values(operand);
  if (value.number) return *value.number;
  throw ConditionError(operands()[operand].offset, fmt::format("'{}' compares numbers, and '{}' is '{}'",
                                                               sign, operands()[operand].text, value.text));
}

bool Condition::truth(std::size_t operand, const Values& values) const {
  const ConditionValue& value = values(operand);
  if (value.truth) return *value.truth;
  throw ConditionError(operands()[operand].offset,
                       fmt::format("'{}' stands alone and must be true or false; it is '{}'",
                                   operands()[operand].text, value.text));
}

bool Condition::holds(const Values& values) const {
  const auto compare = [&](Kind kind, std::size_t left, std::size_t right) {
    bool result = false;
    if (kind == Kind::truth) {
      result = truth(left, values);
    } else if (kind == Kind::equal || kind == Kind::unequal) {
      result = equal(values(left), values(right)) == (kind == Kind::equal);
    } else {
      const double first = number(left, values, sign_of(kind));
      result = compares(kind, first, number(right, values, sign_of(kind)));
    }
    return result ? Truth::yes : Truth::no;
  };
  return expression_.evaluate(compare) == Truth::yes;
}

}  // namespace wflow::specs
