// SPDX-License-Identifier: Apache-2.0
#include "converters/formula.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace wflow::converters {
namespace {

// Evaluates with numbers for the variables, in the order of their first use.
double value(const std::string& text, const std::vector<double>& numbers = {}) {
  const Formula formula = Formula::parse(text);
  std::vector<std::span<const double>> values;
  for (const double& number : numbers) values.emplace_back(&number, 1);
  double result = 0;
  formula.evaluate(values, {&result, 1});
  return result;
}

std::string problem(const std::string& text) {
  try {
    Formula::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::spec);
    return error.what();
  }
  return {};
}

TEST(Formula, Precedence) {
  EXPECT_EQ(value("1 + 2 * 3"), 7);
  EXPECT_EQ(value("(1 + 2) * 3"), 9);
  EXPECT_EQ(value("2 ^ 3 ^ 2"), 512);
  EXPECT_EQ(value("-2 ^ 2"), -4);
  EXPECT_EQ(value("2 ^ -1"), 0.5);
  EXPECT_EQ(value("7 - 2 - 1"), 4);
  EXPECT_EQ(value("-7 % 4"), 1);
  EXPECT_EQ(value("1 < 2 and not 2 < 1 or 0"), 1);
  EXPECT_EQ(value("1 + 1 == 2"), 1);
  EXPECT_EQ(value("1.5e1 + .5"), 15.5);
  EXPECT_EQ(value("x * x - y", {3, 2}), 7);
  EXPECT_EQ(value("where(x > 0, log1p(x), -1)", {-5}), -1);
  EXPECT_EQ(value("min(3, 2) + max(1, 4)"), 6);
  EXPECT_NEAR(value("sin(pi / 2) + asinh(0) + atan2(0, 1)"), 1, 1e-15);
  EXPECT_TRUE(std::isnan(value("log(-1)")));
}

TEST(Formula, NamesWhatItNeeds) {
  const Formula formula = Formula::parse("mean(u) > 2 * a and max(u) < a or notes");
  EXPECT_EQ(formula.variables(), (std::vector<std::string>{"mean(u)", "a", "max(u)", "notes"}));
  EXPECT_EQ(split_variable("mean(u)").function, "mean");
  EXPECT_EQ(split_variable("mean(u)").name, "u");
  EXPECT_EQ(split_variable("a").name, "a");
}

TEST(Formula, ManyValuesAsOne) {
  const Formula formula = Formula::parse("sqrt(x) * a + x");
  std::vector<double> x(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const double a = 0.5;
  std::vector<double> result = x;
  formula.evaluate(std::vector<std::span<const double>>{result, {&a, 1}}, result);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(result[i], std::sqrt(x[i]) * 0.5 + x[i]);
}

TEST(Formula, Reductions) {
  const std::vector<double> numbers = {1, 2, 3, 6};
  EXPECT_EQ(reduce("sum", numbers), 12);
  EXPECT_EQ(reduce("mean", numbers), 3);
  EXPECT_EQ(reduce("min", numbers), 1);
  EXPECT_EQ(reduce("max", numbers), 6);
  EXPECT_EQ(reduce("std", numbers), std::sqrt(3.5));
}

TEST(Formula, WhatIsWrong) {
  EXPECT_EQ(problem("1 +"),
            "the formula '1 +' is wrong at letter 4: it ends where a number or a name is expected");
  EXPECT_EQ(problem("(1"), "the formula '(1' is wrong at letter 3: a ) is missing");
  EXPECT_EQ(problem("1 2"), "the formula '1 2' is wrong at letter 3: '2' was not expected here");
  EXPECT_NE(problem("sqt(x)").find("there is no function 'sqt'; did you mean 'sqrt'?"), std::string::npos);
  EXPECT_NE(problem("mean(x + 1)").find("mean takes the name of a field: mean(u)"), std::string::npos);
  EXPECT_NE(problem("where(1, 2)").find("where takes 3 values"), std::string::npos);
  EXPECT_NE(problem("x & y").find("'& y' was not expected"), std::string::npos);
  EXPECT_NE(problem(std::string(500, '(')).find("nested more than 100 times"), std::string::npos);
  EXPECT_NE(problem(std::string(500, '-') + "1").find("nested more than 100 times"), std::string::npos);
  EXPECT_NE(problem(std::string(3000, '1')).find("longer than 2,000 letters"), std::string::npos);
}

}  // namespace
}  // namespace wflow::converters
