// SPDX-License-Identifier: Apache-2.0
// The when: of all steps of a study, over its rows of parameters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "specs/study/condition.h"
#include "specs/study/study.h"

namespace wflow::specs {

// Refers to the study, which must outlive it and keep its address.
class WhenConditions {
 public:
  // A condition without a value in some row.
  struct Problem {
    std::size_t step = 0;
    ConditionError error;
  };

  explicit WhenConditions(const Study& study);

  bool has(std::size_t step) const { return steps_[step].has_value(); }

  // True if `name` is a parameter, variable or label; and the list of these.
  bool is_name(std::string_view name) const;
  std::vector<std::string> names() const;

  // All names in the step's condition, as $(NAME); empty without one.
  std::string tokens(std::size_t step) const;

  // True for a step without when:, or with an invalid one. False from the first row without a value on;
  // problems() then has that row.
  bool holds(std::size_t step, std::uint32_t row);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  using Column = std::vector<ConditionValue>;  // one for all rows, or one for each row
  struct Bound {
    Condition condition;
    std::vector<const Column*> columns;  // by operand; empty until the first call
    bool failed = false;
  };

  const Column& column(const std::string& text);
  std::string with_tokens(const Condition::Operand& operand) const;

  const Study& study_;
  std::map<std::string, const Parameter*, std::less<>> parameters_;
  std::map<std::string, std::string_view, std::less<>> constants_;  // variables and labels
  std::map<std::string, Column, std::less<>> columns_;              // by the operand's text
  std::vector<std::optional<Bound>> steps_;
  std::vector<Problem> problems_;
};

}  // namespace wflow::specs
