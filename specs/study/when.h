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

// Refers to the study, which must outlive it and stay in its place.
class WhenConditions {
 public:
  // A condition that has no value in some row.
  struct Problem {
    std::size_t step = 0;
    ConditionError error;
  };

  explicit WhenConditions(const Study& study);

  bool has(std::size_t step) const { return steps_[step].has_value(); }

  // Whether `name` is a parameter, variable or label; and all of these.
  bool is_name(std::string_view name) const;
  std::vector<std::string> names() const;

  // Everything that the step's condition names, as $(NAME); empty without one.
  std::string tokens(std::size_t step) const;

  // True for a step without when:, or with one that does not parse. False from the first row on
  // where it has no value, which is then in problems().
  bool holds(std::size_t step, std::uint32_t row);
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  using Column = std::vector<ConditionValue>;  // one for all rows, or one a row
  struct Bound {
    Condition condition;
    std::vector<const Column*> columns;  // of each operand; none until the first question
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
