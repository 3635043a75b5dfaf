// SPDX-License-Identifier: Apache-2.0
// The expressions of `wflow tasks --where` (base/expression.h): omega_m > 0.3 and state = failed.
//
// The left side of a comparison is a field, the right side a number, a text, a word or another field. A value
// that is not known makes its comparison neither true nor false. This has two uses: a task without an exit
// code, and a run of a million tasks of which only step and state are known, which is skipped if the
// expression is already false.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/expression.h"

namespace wflow::cli {

struct WhereField {
  // cell: a sample's value, a number or a text as written. seconds, bytes: numbers that may have a unit.
  enum class Kind { number, seconds, bytes, text, cell };
  std::string name;
  Kind kind = Kind::number;
  std::vector<std::string> words = {};  // text: the only possible values, if they are known
};

using WhereValue = std::variant<std::monostate, double, std::string>;
// The value of fields[index], std::monostate if it is not known.
using WhereLookup = std::function<WhereValue(std::size_t index)>;

class Where {
 public:
  // Throws Error{usage} with the position and the expected text there, or the nearest name and
  // all others.
  Where(std::string_view text, std::vector<WhereField> fields);

  Truth evaluate(const WhereLookup& lookup) const;

 private:
  struct Operand {
    std::optional<std::size_t> field;
    WhereValue value;
  };
  std::size_t field_named(const Expression::Operand& operand) const;
  std::optional<std::size_t> find_field(std::string_view name) const;
  Operand value_for(const WhereField& left, const Expression::Operand& operand) const;
  void bind(const Expression::Node& node);

  std::vector<WhereField> fields_;
  Expression expression_;
  std::vector<Operand> operands_;  // meaning of the expression's operands
};

}  // namespace wflow::cli
