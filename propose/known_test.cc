// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "propose/config.h"
#include "propose/propose.h"

namespace wflow::propose {
namespace {

namespace fs = std::filesystem;

class KnownSamples : public testing::Test {
 protected:
  KnownSamples() { fs::create_directories(folder_); }
  ~KnownSamples() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::string error_of(const ProposeConfig& config, const Known& known) {
    nlohmann::json record;
    try {
      propose(config, known, folder_, record);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  fs::path folder_ = fs::temp_directory_path() / ("wflow-known-" + std::to_string(::getpid()));
};

ProposeConfig config_of(const std::string& text) {
  yaml::Diagnostics diagnostics("block");
  const ProposeConfig config = read_propose_config(yaml::parse(text, diagnostics), diagnostics);
  EXPECT_EQ(diagnostics.to_string(), "");
  return config;
}

std::optional<double> value(const std::string& text, const std::string& file, const std::string& block) {
  const ProposeConfig config = config_of(block);
  std::string problem;
  const auto found = value_of(text, file, config, problem);
  EXPECT_EQ(problem.empty(), found.has_value()) << problem;
  return found;
}

TEST(Values, AreReadFromTextJsonAndByExpression) {
  EXPECT_EQ(value("0.5\n", "r.txt", "{}"), 0.5);
  EXPECT_EQ(value("energy = 3, 4", "r.txt", "{value: -1}"), 4);
  EXPECT_EQ(value("1 2 3", "r.txt", "{value: 2}"), 2);
  EXPECT_EQ(value("1 2 3", "r.txt", "{value: 4}"), std::nullopt);
  EXPECT_EQ(value("", "r.txt", "{}"), std::nullopt);
  EXPECT_EQ(value(R"({"a": {"b": 7}})", "r.json", "{value: a.b}"), 7);
  EXPECT_EQ(value(R"({"a": "b"})", "r.json", "{value: a}"), std::nullopt);
  EXPECT_EQ(value(R"({"a": )", "r.json", "{value: a}"), std::nullopt);
  EXPECT_EQ(value("E = 1\nE = 2\n", "run.log", "{regex: 'E = (\\S+)'}"), 2);
  EXPECT_EQ(value("none", "run.log", "{regex: 'E = (\\S+)'}"), std::nullopt);
  std::string problem;
  EXPECT_THROW(value_of("1 2", "r.txt", config_of("{}"), problem), Error);
  EXPECT_THROW(value_of("1 2", "r.txt", config_of("{value: energy}"), problem), Error);
}

TEST_F(KnownSamples, ComeBackFromTheirTable) {
  const std::vector<Bound> bounds = {{"x", 0, 1}, {"y, z", 0, 1}};
  Known known;
  known.samples = {{{0.1, 0.25}, 1e-17}, {{0.3, 0.5}, std::nullopt}};
  Known again;
  add_table(again, write("values.csv", table_of(known, bounds)), bounds);
  ASSERT_EQ(again.samples.size(), 2);
  EXPECT_EQ(again.samples[0].inputs, known.samples[0].inputs);
  EXPECT_EQ(again.samples[0].value, 1e-17);
  EXPECT_EQ(again.with_value(), 1);
}

TEST_F(KnownSamples, TableWithoutAColumnOrNumberIsRefused) {
  Known known;
  const auto refused = [&](const std::string& text) {
    try {
      add_table(known, write("t.csv", text), {{"x", 0, 1}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused("a,value\n1,2\n").find("no column 'x'"), std::string::npos);
  EXPECT_NE(refused("x,value\none,2\n").find("no number"), std::string::npos);
  EXPECT_NE(refused("x,value\n1,two\n").find("no number"), std::string::npos);
  EXPECT_NE(refused("value,x\n1,2\n").find("the last column"), std::string::npos);
}

TEST_F(KnownSamples, FailedAndNotFiniteOnesAreLeftOutWithANumber) {
  std::string table = "x,file\n";
  const std::vector<std::string> texts = {"1", "nan", "2", "3"};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string name = "s" + std::to_string(i);
    const fs::path file = write(name + "/value.txt", texts[i]);
    if (i != 3) write(name + "/MERLIN_FINISHED", "");
    table += "0." + std::to_string(i) + "," + file.string() + "\n";
  }
  const ProposeConfig config = config_of("{file: value.txt, bounds: {x: [0, 1]}}");
  Known known;
  add_samples(known, write("samples.csv", table), config);
  EXPECT_EQ(known.samples.size(), 4);
  EXPECT_EQ(known.with_value(), 2);
  EXPECT_NE(known.first_problem.find("is nan"), std::string::npos) << known.first_problem;
  nlohmann::json record;
  const Proposal proposal = propose(config, known, folder_, record);
  EXPECT_NE(proposal.sentence.find("4 samples, 2 of them without a value"), std::string::npos)
      << proposal.sentence;
  EXPECT_EQ(record["without_value"], 2);
}

TEST_F(KnownSamples, TooFewOrEqualValuesAreRefused) {
  const ProposeConfig config = config_of("{bounds: {x: [0, 1]}}");
  Known known;
  known.samples = {{{0.1}, 4}, {{0.2}, std::nullopt}};
  known.first_problem = "there is no file /a";
  EXPECT_NE(error_of(config, known).find("1 of 2 known samples has a value"), std::string::npos);
  EXPECT_NE(error_of(config, known).find("there is no file /a"), std::string::npos);
  known.samples = {{{0.1}, 4}, {{0.2}, 4}};
  EXPECT_NE(error_of(config, known).find("all 2 known values are 4"), std::string::npos);
  known.samples.assign(2001, {{0.1}, 4});
  known.samples[0].value = 1;
  EXPECT_NE(error_of(config, known).find("2001 samples have a value"), std::string::npos);
}

TEST_F(KnownSamples, MaximizingIsMinimizingTheNegative) {
  const ProposeConfig up = config_of("{goal: maximize, count: 2, bounds: {x: [0, 1]}}");
  ProposeConfig down = up;
  down.goal = Goal::minimize;
  Known known, negative;
  for (const double x : {0.0, 0.2, 0.5, 0.8, 1.0}) {
    known.samples.push_back({{x}, x * (0.7 - x)});
    negative.samples.push_back({{x}, -x * (0.7 - x)});
  }
  nlohmann::json record;
  const Proposal proposal = propose(up, known, folder_, record);
  EXPECT_EQ(proposal.inputs, propose(down, negative, folder_, record).inputs);
  EXPECT_NEAR(proposal.inputs[0][0], 0.35, 0.05);
}

TEST_F(KnownSamples, UntilEndsTheIterations) {
  ProposeConfig config = config_of("{until: 1e9, bounds: {x: [0, 1]}}");
  Known known;
  known.samples = {{{0.1}, 4}, {{0.2}, 5}, {{0.6}, 2}};
  nlohmann::json record;
  EXPECT_TRUE(propose(config, known, folder_, record).converged);
  config.until = 1e-9;
  EXPECT_FALSE(propose(config, known, folder_, record).converged);
  config.until.reset();
  EXPECT_FALSE(propose(config, known, folder_, record).converged);
}

}  // namespace

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
