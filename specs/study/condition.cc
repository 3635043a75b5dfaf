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

// Deep enough for any question, and no stack overflow from ten thousand parentheses.
constexpr int kMaxDepth = 200;

bool is_blank(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_.-+/:%@~").find(c) != std::string_view::npos;
}

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

class Condition::Parser {
 public:
  Parser(std::string_view text, std::vector<Operand>& operands) : text_(text), operands_(operands) { next(); }

  Node parse() {
    Node node = any(0);
    if (word_.kind != Word::Kind::end) fail("expected a comparison, 'and', 'or' or the end");
    return node;
  }

 private:
  struct Word {
    enum class Kind { end, plain, quoted, symbol };
    Kind kind = Kind::end;
    std::string text;
    std::size_t offset = 0;
  };

  [[noreturn]] void fail(const std::string& expected) const {
    const std::string found = word_.kind == Word::Kind::end ? "the end" : "'" + word_.text + "'";
    const std::string instead = word_.text == "&&"   ? "; write 'and'"
                                : word_.text == "||" ? "; write 'or'"
                                : word_.text == "!"  ? "; write 'not'"
                                                     : "";
    throw ConditionError(word_.offset, fmt::format("{}, found {}{}", expected, found, instead));
  }

  void next() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    const std::size_t begin = at_;
    word_ = {Word::Kind::end, "", begin};
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    if (c == '\'' || c == '"') {
      const std::size_t end = text_.find(c, begin + 1);
      if (end == std::string_view::npos) throw ConditionError(begin, "this text has no closing quote");
      word_ = {Word::Kind::quoted, std::string(text_.substr(begin + 1, end - begin - 1)), begin};
      at_ = end + 1;
      return;
    }
    while (at_ < text_.size()) {
      const auto token = text_[at_] == '$' ? find_token(text_, at_) : std::nullopt;
      if (token && token->begin == at_) {
        at_ = token->end;
      } else if (is_word_character(text_[at_])) {
        ++at_;
      } else {
        break;
      }
    }
    word_.kind = at_ > begin ? Word::Kind::plain : Word::Kind::symbol;
    if (at_ == begin) at_ += is_double_symbol(text_.substr(begin, 2)) ? 2 : 1;
    word_.text = text_.substr(begin, at_ - begin);
  }

  static bool is_double_symbol(std::string_view text) {
    return text == "==" || text == "!=" || text == "<=" || text == ">=" || text == "&&" || text == "||";
  }

  bool is(std::string_view word) const {
    return (word_.kind == Word::Kind::plain || word_.kind == Word::Kind::symbol) &&
           text::lower(word_.text) == word;
  }

  bool take(std::string_view word) {
    if (!is(word)) return false;
    next();
    return true;
  }

  Node any(int depth) { return list(Kind::any, "or", depth, &Parser::all); }
  Node all(int depth) { return list(Kind::all, "and", depth, &Parser::factor); }

  Node list(Kind kind, std::string_view word, int depth, Node (Parser::*part)(int)) {
    Node first = (this->*part)(depth);
    if (!is(word)) return first;
    Node node{kind, {}, {}};
    node.parts.push_back(std::move(first));
    while (take(word)) node.parts.push_back((this->*part)(depth));
    return node;
  }

  Node factor(int depth) {
    if (depth > kMaxDepth) fail("expected fewer parentheses");
    if (take("not")) {
      Node node{Kind::no, {}, {}};
      node.parts.push_back(factor(depth + 1));
      return node;
    }
    if (take("(")) {
      Node node = any(depth + 1);
      if (!take(")")) fail("expected ')'");
      return node;
    }
    return comparison();
  }

  Node comparison() {
    Node node{Kind::truth, {}, {operand()}};
    constexpr std::pair<std::string_view, Kind> kSigns[] = {
        {"==", Kind::equal},      {"=", Kind::equal},   {"!=", Kind::unequal},      {"<", Kind::less},
        {"<=", Kind::less_equal}, {">", Kind::greater}, {">=", Kind::greater_equal}};
    for (const auto& [sign, kind] : kSigns) {
      if (!take(sign)) continue;
      node.kind = kind;
      node.operands.push_back(operand());
      for (const auto& [second, ignored] : kSigns) {
        if (is(second)) fail("expected one comparison at a time (a < b and b < c)");
      }
      return node;
    }
    if (take("not")) {
      if (!is("in")) fail("expected 'in'");
      node.kind = Kind::not_in;
    } else if (is("in")) {
      node.kind = Kind::in;
    } else {
      return node;
    }
    next();
    return list_of_operands(std::move(node));
  }

  Node list_of_operands(Node node) {
    const bool round = is("(");
    if (!take("[") && !take("(")) fail("expected a list: [a, b]");
    do {
      node.operands.push_back(operand());
    } while (take(","));
    if (!take(round ? ")" : "]")) fail(round ? "expected ',' or ')'" : "expected ',' or ']'");
    return node;
  }

  std::size_t operand() {
    const bool keyword = is("and") || is("or") || is("not") || is("in");
    if ((word_.kind != Word::Kind::plain && word_.kind != Word::Kind::quoted) || keyword)
      fail("expected a parameter, a number or a text");
    operands_.push_back({word_.text, word_.kind == Word::Kind::quoted, word_.offset});
    next();
    return operands_.size() - 1;
  }

  std::string_view text_;
  std::vector<Operand>& operands_;
  std::size_t at_ = 0;
  Word word_;
};

Condition::Condition(std::string_view text) {
  root_ = Parser(text, operands_).parse();
}

void Condition::check(const Node& node, const IsName& is_name, const std::vector<std::string>& known,
                      std::vector<ConditionError>& errors) const {
  for (const Node& part : node.parts) check(part, is_name, known, errors);
  if (node.operands.empty()) return;
  bool named = false;
  const Operand* word = nullptr;  // that may have been meant as a name
  for (const std::size_t index : node.operands) {
    const Operand& operand = operands_[index];
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
  const Operand& blamed = word == nullptr ? operands_[node.operands.front()] : *word;
  errors.emplace_back(blamed.offset, fmt::format("'{}' is no parameter and no variable{}", blamed.text,
                                                 text::suggestion(blamed.text, known)));
}

std::vector<ConditionError> Condition::check(const IsName& is_name,
                                             const std::vector<std::string>& known) const {
  std::vector<ConditionError> errors;
  check(root_, is_name, known, errors);
  return errors;
}

double Condition::number(std::size_t operand, const Values& values, std::string_view sign) const {
  const ConditionValue& value = values(operand);
  if (value.number) return *value.number;
  throw ConditionError(operands_[operand].offset, fmt::format("'{}' compares numbers, and '{}' is '{}'", sign,
                                                              operands_[operand].text, value.text));
}

bool Condition::holds(const Values& values) const {
  return holds(root_, values);
}

bool Condition::holds(const Node& node, const Values& values) const {
  const auto part_holds = [&](const Node& part) { return holds(part, values); };
  const auto left = [&](std::string_view sign) { return number(node.operands[0], values, sign); };
  const auto right = [&](std::string_view sign) { return number(node.operands[1], values, sign); };
  switch (node.kind) {
    case Kind::all:
      return std::all_of(node.parts.begin(), node.parts.end(), part_holds);
    case Kind::any:
      return std::any_of(node.parts.begin(), node.parts.end(), part_holds);
    case Kind::no:
      return !holds(node.parts.front(), values);
    case Kind::equal:
      return equal(values(node.operands[0]), values(node.operands[1]));
    case Kind::unequal:
      return !equal(values(node.operands[0]), values(node.operands[1]));
    case Kind::less:
      return left("<") < right("<");
    case Kind::less_equal:
      return left("<=") <= right("<=");
    case Kind::greater:
      return left(">") > right(">");
    case Kind::greater_equal:
      return left(">=") >= right(">=");
    case Kind::in:
    case Kind::not_in: {
      const ConditionValue& wanted = values(node.operands.front());
      const bool found = std::any_of(node.operands.begin() + 1, node.operands.end(),
                                     [&](std::size_t index) { return equal(wanted, values(index)); });
      return found == (node.kind == Kind::in);
    }
    case Kind::truth:
      break;
  }
  const ConditionValue& value = values(node.operands.front());
  if (value.truth) return *value.truth;
  const Operand& operand = operands_[node.operands.front()];
  throw ConditionError(operand.offset, fmt::format("'{}' stands alone and must be true or false; it is '{}'",
                                                   operand.text, value.text));
}

}  // namespace wflow::specs
