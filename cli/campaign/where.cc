// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/where.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace wflow::cli {

namespace {

enum class Operator { all, any, no, equal, unequal, less, less_equal, greater, greater_equal };

// Deep enough for any question, and no stack overflow from ten thousand parentheses.
constexpr int kMaxDepth = 200;

struct Operand {
  std::optional<std::size_t> field;
  WhereValue value;
};

struct Token {
  enum class Kind { end, word, number, text, symbol };
  Kind kind = Kind::end;
  std::string text;
  std::size_t column = 1;
};

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
}

}  // namespace

struct Where::Node {
  Operator kind;
  std::vector<Node> parts;  // all, any, no
  Operand left, right;      // comparisons
};

namespace {

using Node = Where::Node;

class Parser {
 public:
  Parser(std::string_view text, const std::vector<WhereField>& fields) : text_(text), fields_(fields) {
    next();
  }

  Node parse() {
    Node node = any(0);
    if (token_.kind != Token::Kind::end) fail("expected 'and', 'or' or the end");
    return node;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_at(token_.column, what, token_); }
  [[noreturn]] void fail_at(std::size_t column, const std::string& what, const Token& found) const {
    const std::string where = found.kind == Token::Kind::end ? "the end" : "'" + found.text + "'";
    throw Error(ExitCode::usage, fmt::format("--where, column {}: {}, found {}", column, what, where));
  }
  [[noreturn]] void wrong(std::size_t column, const std::string& what) const {
    throw Error(ExitCode::usage, fmt::format("--where, column {}: {}", column, what));
  }

  void next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    const std::size_t begin = at_;
    token_ = {Token::Kind::end, "", begin + 1};
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    if (c == '\'' || c == '"') {
      const std::size_t end = text_.find(c, begin + 1);
      if (end == std::string_view::npos) wrong(begin + 1, "this text has no closing quote");
      token_ = {Token::Kind::text, std::string(text_.substr(begin + 1, end - begin - 1)), begin + 1};
      at_ = end + 1;
    } else if (is_word_character(c) || c == '+') {
      // 1e+5 is one word, a sign in its middle.
      while (at_ < text_.size() &&
             (is_word_character(text_[at_]) ||
              (text_[at_] == '+' && (at_ == begin || text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))) {
        ++at_;
      }
      const std::string word(text_.substr(begin, at_ - begin));
      token_ = {text::to_real(word) ? Token::Kind::number : Token::Kind::word, word, begin + 1};
    } else {
      at_ += text_.substr(begin, 2) == "==" || text_.substr(begin, 2) == "!=" ||
                     text_.substr(begin, 2) == "<=" || text_.substr(begin, 2) == ">="
                 ? 2
                 : 1;
      token_ = {Token::Kind::symbol, std::string(text_.substr(begin, at_ - begin)), begin + 1};
    }
  }

  bool take(std::string_view word) {
    if (token_.kind != Token::Kind::word && token_.kind != Token::Kind::symbol) return false;
    if (text::lower(token_.text) != word) return false;
    next();
    return true;
  }

  Node any(int depth) { return list(Operator::any, "or", depth, &Parser::all); }
  Node all(int depth) { return list(Operator::all, "and", depth, &Parser::factor); }

  Node list(Operator kind, std::string_view word, int depth, Node (Parser::*part)(int)) {
    Node first = (this->*part)(depth);
    if (text::lower(token_.text) != word || token_.kind != Token::Kind::word) return first;
    Node node{kind, {}, {}, {}};
    node.parts.push_back(std::move(first));
    while (take(word)) node.parts.push_back((this->*part)(depth));
    return node;
  }

  Node factor(int depth) {
    if (depth > kMaxDepth) fail("too many parentheses");
    if (take("not")) {
      Node node{Operator::no, {}, {}, {}};
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
    if (token_.kind != Token::Kind::word) fail("expected a field (state, sample, ...)");
    const std::size_t column = token_.column;
    const std::size_t field = field_named(token_.text, column);
    next();
    if (take("in")) return membership(field);
    constexpr std::pair<std::string_view, Operator> kOperators[] = {
        {"=", Operator::equal},         {"==", Operator::equal},      {"!=", Operator::unequal},
        {"<", Operator::less},          {"<=", Operator::less_equal}, {">", Operator::greater},
        {">=", Operator::greater_equal}};
    const auto* const known = std::find_if(std::begin(kOperators), std::end(kOperators),
                                           [&](const auto& o) { return o.first == token_.text; });
    if (token_.kind != Token::Kind::symbol || known == std::end(kOperators))
      fail("expected one of = != < <= > >= in");
    next();
    return {known->second, {}, {field, {}}, operand(field)};
  }

  Node membership(std::size_t field) {
    if (!take("(")) fail("expected '('");
    Node node{Operator::any, {}, {}, {}};
    do {
      node.parts.push_back({Operator::equal, {}, {field, {}}, operand(field)});
    } while (take(","));
    if (!take(")")) fail("expected ',' or ')'");
    return node;
  }

  std::size_t field_named(const std::string& name, std::size_t column) const {
    if (const auto found = find_field(name)) return *found;
    std::vector<std::string> names;
    for (const WhereField& field : fields_) names.push_back(field.name);
    const std::string hint = text::suggestion(name, names);
    wrong(column, fmt::format("no field '{}'{}", name,
                              hint.empty() ? "; there are " + text::join(names, ", ") : hint));
  }

  std::optional<std::size_t> find_field(const std::string& name) const {
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i].name == name) return i;
    }
    return std::nullopt;
  }

  // What stands right of an operator, to be compared with `field`.
  Operand operand(std::size_t field) {
    const Token token = token_;
    const WhereField& left = fields_[field];
    if (token.kind == Token::Kind::end || token.kind == Token::Kind::symbol) fail("expected a value");
    next();
    if (left.kind == WhereField::Kind::text) {
      if (!left.words.empty() &&
          std::find(left.words.begin(), left.words.end(), token.text) == left.words.end()) {
        const std::string hint = text::suggestion(token.text, left.words);
        wrong(token.column,
              fmt::format("no {} '{}'{}", left.name, token.text,
                          !hint.empty()            ? hint
                          : left.words.size() > 20 ? std::string()
                                                   : "; there are " + text::join(left.words, ", ")));
      }
      return {std::nullopt, token.text};
    }
    if (token.kind == Token::Kind::number) return {std::nullopt, *text::to_real(token.text)};
    if (token.kind == Token::Kind::word) {
      if (const auto other = find_field(token.text); other && fields_[*other].kind != WhereField::Kind::text)
        return {other, {}};
      if (left.kind == WhereField::Kind::cell) return {std::nullopt, token.text};
      field_named(token.text, token.column);
    }
    if (left.kind == WhereField::Kind::number)
      wrong(token.column, fmt::format("{} is a number, '{}' is not", left.name, token.text));
    return {std::nullopt, token.text};
  }

  std::string_view text_;
  const std::vector<WhereField>& fields_;
  std::size_t at_ = 0;
  Token token_;
};

WhereValue value_of(const Operand& operand, const WhereLookup& lookup) {
  return operand.field ? lookup(*operand.field) : operand.value;
}

template <typename T>
bool compare(Operator kind, const T& a, const T& b) {
  switch (kind) {
    case Operator::equal:
      return a == b;
    case Operator::unequal:
      return a != b;
    case Operator::less:
      return a < b;
    case Operator::less_equal:
      return a <= b;
    case Operator::greater:
      return a > b;
    default:
      return a >= b;
  }
}

std::optional<double> number_of(const WhereValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return text::to_real(std::get<std::string>(value));
}

Truth compare_values(Operator kind, const WhereValue& a, const WhereValue& b) {
  if (a.index() == 0 || b.index() == 0) return Truth::unknown;
  const auto* left = std::get_if<std::string>(&a);
  const auto* right = std::get_if<std::string>(&b);
  if (left != nullptr && right != nullptr) return compare(kind, *left, *right) ? Truth::yes : Truth::no;
  const auto first = number_of(a);
  const auto second = number_of(b);
  if (!first || !second) return Truth::unknown;  // a cell that is no number
  return compare(kind, *first, *second) ? Truth::yes : Truth::no;
}

Truth evaluate_node(const Node& node, const WhereLookup& lookup) {
  switch (node.kind) {
    case Operator::no: {
      const Truth truth = evaluate_node(node.parts.front(), lookup);
      return truth == Truth::yes ? Truth::no : truth == Truth::no ? Truth::yes : truth;
    }
    case Operator::all:
    case Operator::any: {
      const Truth decides = node.kind == Operator::all ? Truth::no : Truth::yes;
      Truth result = node.kind == Operator::all ? Truth::yes : Truth::no;
      for (const Node& part : node.parts) {
        const Truth truth = evaluate_node(part, lookup);
        if (truth == decides) return truth;
        if (truth == Truth::unknown) result = truth;
      }
      return result;
    }
    default:
      return compare_values(node.kind, value_of(node.left, lookup), value_of(node.right, lookup));
  }
}

}  // namespace

Where::Where(std::string_view text, std::vector<WhereField> fields)
    : root_(std::make_unique<Node>(Parser(text, fields).parse())) {}
Where::~Where() = default;
Where::Where(Where&&) noexcept = default;
Where& Where::operator=(Where&&) noexcept = default;

Truth Where::evaluate(const WhereLookup& lookup) const {
  return evaluate_node(*root_, lookup);
}

}  // namespace wflow::cli
