// SPDX-License-Identifier: Apache-2.0
// The expressions of `wflow tasks --where`: omega_m > 0.3 and state = failed.
//
//   expression = term { "or" term }        term = factor { "and" factor }
//   factor     = "not" factor | "(" expression ")" | field (= == != < <= > >=) value | field "in" "(" value,
//   ... ")" value      = number | 'text' | "text" | word | field
//
// Three-valued, as SQL has it: a comparison with a value that is not known is neither true nor false. This
// serves twice: for a task that has no exit code, and for a run of a million tasks of which only step and
// state are known, which is passed over when the expression is false already.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace wflow::cli {

enum class Truth { no, unknown, yes };

struct WhereField {
  enum class Kind { number, text, cell };  // cell: a sample's value, a number or a text as it is written
  std::string name;
  Kind kind = Kind::number;
  std::vector<std::string> words;  // text: the only values that it can have, where they are known
};

using WhereValue = std::variant<std::monostate, double, std::string>;
// The value of fields[index], std::monostate where it is not known.
using WhereLookup = std::function<WhereValue(std::size_t index)>;

class Where {
 public:
  // Throws Error{usage} with the position and what was expected there, or the nearest name.
  Where(std::string_view text, std::vector<WhereField> fields);
  ~Where();
  Where(Where&&) noexcept;
  Where& operator=(Where&&) noexcept;

  Truth evaluate(const WhereLookup& lookup) const;

  struct Node;

 private:
  std::unique_ptr<const Node> root_;
};

}  // namespace wflow::cli
