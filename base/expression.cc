// SPDX-License-Identifier: Apache-2.0
#include "base/expression.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "base/text.h"

namespace wflow {

namespace {

using Kind = Expression::Kind;
using Node = Expression::Node;

// Deep enough for real expressions; prevents a stack overflow with ten thousand parentheses.
constexpr int kMaxNesting = 200;

constexpr std::pair<std::string_view, Kind> kSigns[] = {
    {"==", Kind::equal},      {"=", Kind::equal},   {"!=", Kind::unequal},      {"<", Kind::less},
    {"<=", Kind::less_equal}, {">", Kind::greater}, {">=", Kind::greater_equal}};

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

bool is_double_symbol(std::string_view text) {
  return text == "==" || text == "!=" || text == "<=" || text == ">=" || text == "&&" || text == "||";
}

class Parser {
 public:
  Parser(std::string_view text, const Expression::Dialect& dialect,
         std::vector<Expression::Operand>& operands)
      : text_(text), dialect_(dialect), operands_(operands) {
    next();
  }

  Node parse() {
    Node node = any(0);
    if (word_.kind != Word::Kind::end) fail(dialect_.expected_end);
    return node;
  }

 private:
  struct Word {
    enum class Kind { end, plain, quoted, symbol };
    Kind kind = Kind::end;
    std::string text;
    std::size_t offset = 0;
  };

  [[noreturn]] void fail(std::string_view expected) const {
    const std::string found = word_.kind == Word::Kind::end ? "the end" : "'" + word_.text + "'";
    const std::string instead = word_.text == "&&"   ? "; write 'and'"
                                : word_.text == "||" ? "; write 'or'"
                                : word_.text == "!"  ? "; write 'not'"
                                                     : "";
    throw ExpressionError(word_.offset, fmt::format("{}, found {}{}", expected, found, instead));
  }

  void next() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    const std::size_t begin = at_;
    word_ = {Word::Kind::end, "", begin};
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    if (c == '\'' || c == '"') {
      const std::size_t end = text_.find(c, begin + 1);
      if (end == std::string_view::npos) throw ExpressionError(begin, "this text has no closing quote");
      word_ = {Word::Kind::quoted, std::string(text_.substr(begin + 1, end - begin - 1)), begin};
      at_ = end + 1;
      return;
    }
    at_ = dialect_.word_end(text_, begin);
    word_.kind = at_ > begin ? Word::Kind::plain : Word::Kind::symbol;
    if (at_ == begin) at_ += is_double_symbol(text_.substr(begin, 2)) ? 2 : 1;
    word_.text = text_.substr(begin, at_ - begin);
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
    if (depth > kMaxNesting) fail(dialect_.expected_depth);
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
    if (dialect_.left_is_name && (word_.kind != Word::Kind::plain || text::to_real(word_.text)))
      fail(dialect_.expected_left);
    Node node{Kind::truth, {}, {operand(dialect_.expected_left)}};
    for (const auto& [sign, kind] : kSigns) {
      if (!take(sign)) continue;
      node.kind = kind;
      node.operands.push_back(operand(dialect_.expected_right));
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
    } else if (dialect_.left_is_name) {
      fail(dialect_.expected_sign);
    } else {
      return node;
    }
    next();
    return list_of_operands(std::move(node));
  }

  Node list_of_operands(Node node) {
    const bool round = is("(");
    if (!take("[") && !take("(")) fail(dialect_.expected_list);
    do {
      node.operands.push_back(operand(dialect_.expected_right));
    } while (take(","));
    if (!take(round ? ")" : "]")) fail(round ? "expected ',' or ')'" : "expected ',' or ']'");
    return node;
  }

  std::size_t operand(const char* expected) {
    const bool keyword = is("and") || is("or") || is("not") || is("in");
    if ((word_.kind != Word::Kind::plain && word_.kind != Word::Kind::quoted) || keyword) fail(expected);
    operands_.push_back({word_.text, word_.kind == Word::Kind::quoted, word_.offset});
    next();
    return operands_.size() - 1;
  }

  std::string_view text_;
  const Expression::Dialect& dialect_;
  std::vector<Expression::Operand>& operands_;
  std::size_t at_ = 0;
  Word word_;
};

}  // namespace

Expression::Expression(std::string_view text, const Dialect& dialect) {
  root_ = Parser(text, dialect, operands_).parse();
}

std::string_view sign_of(Expression::Kind kind) {
  for (const auto& [sign, known] : kSigns) {
    if (known == kind) return sign;
  }
  return "in";
}

}  // namespace wflow
