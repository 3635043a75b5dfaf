// SPDX-License-Identifier: Apache-2.0
#include "propose/config.h"

#include <gtest/gtest.h>

namespace wflow::propose {
namespace {

std::string errors_of(const std::string& text) {
  yaml::Diagnostics diagnostics("block");
  read_propose_config(yaml::parse(text, diagnostics), diagnostics);
  return diagnostics.to_string();
}

TEST(ProposeConfig, ReadsBackAsAnEqualValue) {
  yaml::Diagnostics diagnostics("block");
  const std::string text =
      "{from: simulate, file: r.json, value: a.b, rule: upper_confidence_bound, goal: maximize, kernel: "
      "squared_exponential, count: 8, kappa: 3, until: 0.5, relative: true, noise: true, models: [a, b], "
      "target: "
      "y, bounds: {x: [-5, 10], k: {low: 1, high: 10, log: true, integer: true}}, candidates: 99, seed: 7}";
  const ProposeConfig config = read_propose_config(yaml::parse(text, diagnostics), diagnostics);
  EXPECT_EQ(diagnostics.to_string(), "");
  EXPECT_EQ(config.bounds[1], (Bound{"k", 1, 10, true, true}));
  yaml::Diagnostics again("written");
  EXPECT_EQ(read_propose_config(yaml::parse(yaml::emit(to_yaml(config)), again), again), config);
  EXPECT_EQ(again.to_string(), "");
}

TEST(ProposeConfig, ReportsWrongValues) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{rule: best}", "expected_improvement"},
      {"{count: 0}", "count"},
      {"{bounds: {x: [3, 1]}}", "the range of 'x' is empty"},
      {"{bounds: {x: {low: 0, high: 1, log: true}}}", "must be above 0"},
      {"{bounds: {x: 3}}", "[low, high]"},
      {"{regex: 'a('}", "RE2"},
      {"{regex: 'abc'}", "needs a group"},
      {"{regex: '(a)', value: 1}", "one of them must go"},
      {"{relative: true}", "goes with 'until'"},
      {"{rule: maximin, models: [m]}", "uses no model"},
      {"{goals: minimize}", "goal"}};
  for (const auto& [text, expected] : cases)
    EXPECT_NE(errors_of(text).find(expected), std::string::npos) << text << ": " << errors_of(text);
}

}  // namespace
}  // namespace wflow::propose
