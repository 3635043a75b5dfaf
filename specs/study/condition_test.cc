// SPDX-License-Identifier: Apache-2.0
#include "specs/study/condition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "specs/plan/expansion.h"

namespace wflow::specs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Names = std::map<std::string, std::string, std::less<>>;

bool holds(std::string_view text, const Names& names = {}) {
  const Condition condition(text);
  std::vector<ConditionValue> values;
  for (const Condition::Operand& operand : condition.operands()) {
    const auto at = names.find(operand.text);
    values.emplace_back(at == names.end() || operand.quoted ? operand.text : at->second);
  }
  return condition.holds([&](std::size_t i) -> const ConditionValue& { return values[i]; });
}

// "offset: message"
std::string error(std::string_view text, const Names& names = {}) {
  try {
    holds(text, names);
  } catch (const ConditionError& error) {
    return std::to_string(error.offset) + ": " + error.what();
  }
  return {};
}

TEST(Condition, ComparesNumbersTruthAndText) {
  const Names names = {{"N", "10"}, {"MODE", "fast"}, {"FLAG", "Yes"}, {"X", "0.10"}};
  for (const char* text : {"N == 10",
                           "N = 10.0",
                           "10 == N",
                           "N != 9",
                           "N < 1e3",
                           "N <= 10",
                           "N > -5",
                           "N >= '10'",
                           "X == 0.1",
                           "MODE == fast",
                           "MODE == 'fast'",
                           "MODE != \"slow one\"",
                           "FLAG == true",
                           "FLAG",
                           "not FLAG == off",
                           "MODE in [slow, fast]",
                           "N not in [1, 2]",
                           "N in (9, 10.0)",
                           "'MODE' != fast",
                           "MODE == FLAG or N > 3 and X < 1",
                           "not (MODE == slow and N > 3)",
                           "true and not false",
                           "NOT false AND TRUE"}) {
    EXPECT_TRUE(holds(text, names)) << text;
  }
  for (const char* text : {"N == '10x'", "N > 10", "MODE == Fast", "FLAG == false", "N in [1]",
                           "MODE not in [fast]", "false or N < 3", "not not false"}) {
    EXPECT_FALSE(holds(text, names)) << text;
  }
}

TEST(Condition, BindsAndTighterThanOr) {
  EXPECT_TRUE(holds("true or false and false"));
  EXPECT_FALSE(holds("(true or false) and false"));
  EXPECT_TRUE(holds("not false and true"));
}

TEST(Condition, KeepsTokensWhole) {
  const Condition condition("$(A b) == x$(P)/y and '$(Q) z' != 1");
  std::vector<std::string> texts;
  for (const auto& operand : condition.operands()) texts.push_back(operand.text);
  EXPECT_THAT(texts, ElementsAre("$(A b)", "x$(P)/y", "$(Q) z", "1"));
}

TEST(Condition, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(error(""), "0: expected a parameter, a number or a text, found the end");
  EXPECT_EQ(error("N =="), "4: expected a parameter, a number or a text, found the end");
  EXPECT_EQ(error("N == 3 4"), "7: expected a comparison, 'and', 'or' or the end, found '4'");
  EXPECT_EQ(error("N == 3 && M"),
            "7: expected a comparison, 'and', 'or' or the end, found '&&'; write 'and'");
  EXPECT_EQ(error("(N == 3"), "7: expected ')', found the end");
  EXPECT_EQ(error("N == 'x"), "5: this text has no closing quote");
  EXPECT_EQ(error("N in 3"), "5: expected a list: [a, b], found '3'");
  EXPECT_EQ(error("N in [3 4]"), "8: expected ',' or ']', found '4'");
  EXPECT_EQ(error("N not 3"), "6: expected 'in', found '3'");
  EXPECT_EQ(error("1 < N < 3"), "6: expected one comparison at a time (a < b and b < c), found '<'");
  EXPECT_EQ(error("and"), "0: expected a parameter, a number or a text, found 'and'");
  EXPECT_EQ(error("N > x", {{"N", "3"}}), "4: '>' compares numbers, and 'x' is 'x'");
  EXPECT_EQ(error("N", {{"N", "3"}}), "0: 'N' stands alone and must be true or false; it is '3'");
  EXPECT_THAT(error(std::string(100000, '(')), HasSubstr("expected fewer parentheses"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "not ";
  EXPECT_THAT(error(deep), HasSubstr("expected fewer parentheses"));
}

TEST(Condition, ChecksItsNames) {
  const auto errors = [](std::string_view text) {
    std::vector<std::string> found;
    const auto is_name = [](std::string_view name) { return name == "SIZE" || name == "MODE"; };
    for (const ConditionError& error : Condition(text).check(is_name, {"SIZE", "MODE"}))
      found.push_back(std::to_string(error.offset) + ": " + error.what());
    return found;
  };
  EXPECT_THAT(errors("SIZE > 3 and (MODE == fast or 3 < $(SIZE)) and 'x$(MODE)' == x"), ElementsAre());
  EXPECT_THAT(errors("true"), ElementsAre());
  EXPECT_THAT(errors("SIZ > 3"),
              ElementsAre("0: 'SIZ' is no parameter and no variable; did you mean 'SIZE'?"));
  EXPECT_THAT(errors("3 < SIZ"),
              ElementsAre("4: 'SIZ' is no parameter and no variable; did you mean 'SIZE'?"));
  EXPECT_THAT(errors("fast == 'fast'"), ElementsAre("0: 'fast' is no parameter and no variable"));
  EXPECT_THAT(errors("SIZE == '$(MOD)'"),
              ElementsAre("9: '$(MOD)' is no parameter and no variable; did you mean 'MODE'?"));
}

TEST(Subset, CountsAndFinds) {
  for (const std::uint32_t size : {1U, 64U, 1000U}) {
    const Subset odd(size, [](std::uint32_t i) { return i % 2 == 1 && (i < 60 || i > 400); });
    std::uint32_t position = 0;
    for (std::uint32_t i = 0; i < size; ++i) {
      EXPECT_EQ(odd.contains(i), i % 2 == 1 && (i < 60 || i > 400));
      EXPECT_EQ(odd.position(i), position);
      if (!odd.contains(i)) continue;
      EXPECT_EQ(odd.at(position), i);
      ++position;
    }
    EXPECT_EQ(odd.count(), position);
  }
}

}  // namespace
}  // namespace wflow::specs
