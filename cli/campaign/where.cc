// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/where.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/yaml.h"

namespace wflow::cli {

namespace {

using Kind = Expression::Kind;

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
}

// 1e+5 is one word, a sign in its middle.
std::size_t word_end(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  while (at < text.size() &&
         (is_word_character(text[at]) ||
          (text[at] == '+' && (at == begin || text[at - 1] == 'e' || text[at - 1] == 'E')))) {
    ++at;
  }
  return at;
}

constexpr Expression::Dialect kDialect = {word_end,
                                          true,
                                          "expected a field (state, sample, ...)",
                                          "expected a value",
                                          "expected one of = != < <= > >= in",
                                          "expected '('",
                                          "expected 'and', 'or' or the end",
                                          "too many parentheses"};

Error where_error(std::size_t offset, const std::string& what) {
  return Error(ExitCode::usage, fmt::format("--where, column {}: {}", offset + 1, what));
}

Expression parse(std::string_view text) {
  try {
    return Expression(text, kDialect);
  } catch (const ExpressionError& error) {
    throw where_error(error.offset, error.what());
  }
}

std::optional<double> number_of(const WhereValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return text::to_real(std::get<std::string>(value));
}

Truth truth_of(bool holds) {
  return holds ? Truth::yes : Truth::no;
}

// "60s" and "2GiB", for fields that have a unit.
std::optional<double> with_unit(WhereField::Kind kind, std::string_view text) {
  if (kind == WhereField::Kind::seconds) return yaml::parse_seconds(text);
  const auto bytes = kind == WhereField::Kind::bytes ? yaml::parse_bytes(text) : std::nullopt;
  return bytes ? std::optional(static_cast<double>(*bytes)) : std::nullopt;
}

std::string not_of_kind(const WhereField& field, std::string_view text) {
  using Field = WhereField::Kind;
  const char* what = field.kind == Field::seconds ? "a time (90, 10min)"
                     : field.kind == Field::bytes ? "a number of bytes (1e9, 2GiB)"
                                                  : "a number";
  return fmt::format("{} is {}, '{}' is not", field.name, what, text);
}

Truth compare_values(Kind kind, const WhereValue& a, const WhereValue& b) {
  if (a.index() == 0 || b.index() == 0) return Truth::unknown;
  const auto* left = std::get_if<std::string>(&a);
  const auto* right = std::get_if<std::string>(&b);
  if (left != nullptr && right != nullptr) return truth_of(compares(kind, *left, *right));
  const auto first = number_of(a);
  const auto second = number_of(b);
  if (!first || !second) return Truth::unknown;  // the cell holds no number
  return truth_of(compares(kind, *first, *second));
}

}  // namespace

Where::Where(std::string_view text, std::vector<WhereField> fields)
    : fields_(std::move(fields)), expression_(parse(text)), operands_(expression_.operands().size()) {
  bind(expression_.root());
}

void Where::bind(const Expression::Node& node) {
  for (const Expression::Node& part : node.parts) bind(part);
  if (node.operands.empty()) return;
  const std::size_t field = field_named(expression_.operands()[node.operands.front()]);
  operands_[node.operands.front()].field = field;
  for (auto at = node.operands.begin() + 1; at != node.operands.end(); ++at)
    operands_[*at] = value_for(fields_[field], expression_.operands()[*at]);
}

std::optional<std::size_t> Where::find_field(std::string_view name) const {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name == name) return i;
  }
  return std::nullopt;
}

std::size_t Where::field_named(const Expression::Operand& operand) const {
  if (const auto found = find_field(operand.text)) return *found;
  std::vector<std::string> names;
  for (const WhereField& field : fields_) names.push_back(field.name);
  const std::string hint = text::suggestion(operand.text, names);
  throw where_error(operand.offset, fmt::format("no field '{}'{}there are {}", operand.text,
                                                hint.empty() ? "; " : hint + " ", text::join(names, ", ")));
}

// The right side of a comparison with the field `left`.
Where::Operand Where::value_for(const WhereField& left, const Expression::Operand& operand) const {
  const std::string& text = operand.text;
  if (left.kind == WhereField::Kind::text) {
    if (!left.words.empty() && std::find(left.words.begin(), left.words.end(), text) == left.words.end()) {
      const std::string hint = text::suggestion(text, left.words);
      throw where_error(operand.offset, fmt::format("no {} '{}'{}", left.name, text,
                                                    !hint.empty() ? hint
                                                    : left.words.size() > 20
                                                        ? std::string()
                                                        : "; there are " + text::join(left.words, ", ")));
    }
    return {std::nullopt, text};
  }
  if (!operand.quoted) {
    if (const auto number = text::to_real(text)) return {std::nullopt, *number};
    if (const auto other = find_field(text); other && fields_[*other].kind != WhereField::Kind::text)
      return {other, {}};
    if (const auto number = with_unit(left.kind, text)) return {std::nullopt, *number};
    if (left.kind == WhereField::Kind::cell) return {std::nullopt, text};
    if (std::isdigit(static_cast<unsigned char>(text.front())) != 0)
      throw where_error(operand.offset, not_of_kind(left, text));
    field_named(operand);  // throws with the names of the fields
  }
  if (left.kind != WhereField::Kind::cell) throw where_error(operand.offset, not_of_kind(left, text));
  return {std::nullopt, text};
}

Truth Where::evaluate(const WhereLookup& lookup) const {
  const auto value_of = [&](std::size_t index) {
    const Operand& operand = operands_[index];
    return operand.field ? lookup(*operand.field) : operand.value;
  };
  return expression_.evaluate([&](Kind kind, std::size_t left, std::size_t right) {
    return compare_values(kind, value_of(left), value_of(right));
  });
}

}  // namespace wflow::cli
