// SPDX-License-Identifier: Apache-2.0
// Runs of simulators with known posteriors (testdata/trace_models.c): recorded, weighted, proposed by a
// network with any weights, and followed by a chain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "plugin/wflow_plugin.h"
#include "traces/chain.h"
#include "traces/proposal_network.h"
#include "traces/run.h"

extern "C" {
const struct wflow_plugin* gaussian();
const struct wflow_plugin* linear();
const struct wflow_plugin* branching();
const struct wflow_plugin* rejecting();
const struct wflow_plugin* replacing();
const struct wflow_plugin* counting();
const struct wflow_plugin* kinds();
const struct wflow_plugin* mistaken();
}

namespace wflow::traces {
namespace {

using Model = const struct wflow_plugin* (*)();

NameTable& test_names() {
  static NameTable names;
  return names;
}

RunResult run_of(Model model, std::vector<double> truth, Sampler& sampler, Random& random,
                 std::uint64_t sample = 0, NameTable& names = test_names()) {
  const struct wflow_plugin& plugin = *model();
  const std::size_t values = plugin.arrays[0].shape[0];
  const std::vector<Observed> arrays = {{plugin.arrays[0].name, values, truth}};
  Run run(sampler, arrays, names, random);
  char error[200] = "";
  plugin.trace(nullptr, sample, nullptr, run.functions(), error, sizeof error);
  return run.finish();
}

RunResult recorded(Model model, std::uint64_t seed, std::uint64_t sample = 0) {
  PriorSampler sampler;
  Random random(seed);
  return run_of(model, {}, sampler, random, sample);
}

std::vector<std::string> names_in(const RunResult& result) {
  std::vector<std::string> names;
  for (const TraceDraw& draw : result.draws) names.push_back(draw.name->text);
  return names;
}

double value_in(const RunResult& result, const std::string& name) {
  for (const TraceDraw& draw : result.draws)
    if (draw.name->text == name) return draw.row[kValue];
  return std::nan("");
}

AddressTable table_of(Model model, int runs) {
  NameTable names;
  PriorSampler sampler;
  for (int i = 0; i < runs; ++i) {
    Random random(static_cast<std::uint64_t>(i) + 1);
    const RunResult result = run_of(model, {}, sampler, random, 0, names);
    for (const TraceDraw& draw : result.draws) ++draw.name->draws;
    names.add_type(result.type, result.draws.size());
  }
  return names.addresses();
}

// A network with weights as they are before any training: its proposals are poor, and the weights correct
// them.
ProposalNetwork network_of(AddressTable table) {
  const ProposalNetwork::Sizes sizes = {2, 8, 3};
  const std::size_t count = ProposalNetwork::parameter_count(sizes, table);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(0.3F * static_cast<float>(normal_real(5, i)));
  return ProposalNetwork::parse(ProposalNetwork::text(sizes, table, values), "a test");
}

struct Moments {
  double mean = 0, deviation = 0, effective = 0, log_evidence = 0;
};

Moments weighted(Model model, const std::vector<double>& truth, Sampler& sampler, int runs,
                 const std::function<double(const RunResult&)>& value) {
  double sum = 0, squares = 0, first = 0, second = 0;
  Random random(11);
  for (int i = 0; i < runs; ++i) {
    const RunResult result = run_of(model, truth, sampler, random);
    EXPECT_EQ(result.mistake, "");
    const double weight = std::exp(result.log_weight());
    const double x = value(result);
    if (weight == 0) continue;
    sum += weight;
    squares += weight * weight;
    first += weight * x;
    second += weight * x * x;
  }
  const double mean = first / sum;
  return {mean, std::sqrt(second / sum - mean * mean), sum * sum / squares, std::log(sum / runs)};
}

std::function<double(const RunResult&)> draw_called(const std::string& name) {
  return [name](const RunResult& result) { return value_in(result, name); };
}

struct Known {
  Model model;
  std::vector<double> truth;
  std::string name;
  double mean, deviation;
};

// The bound of `rejecting` is uniform, x is normal above it: integrates over both.
std::pair<double, double> posterior_of_rejection(double y) {
  double sum = 0, first = 0, second = 0;
  for (int i = 0; i < 2000; ++i) {
    const double bound = -1 + 2.5 * (i + 0.5) / 2000;
    const double above = normal_below(-bound);
    for (int k = 0; k < 2000; ++k) {
      const double x = bound + 5.0 * (k + 0.5) / 2000;
      const double p = std::exp(log_normal_density(x) + log_normal_density((y - x) / 0.3)) / above;
      sum += p;
      first += p * bound;
      second += p * bound * bound;
    }
  }
  const double mean = first / sum;
  return {mean, std::sqrt(second / sum - mean * mean)};
}

std::vector<Known> known_posteriors() {
  const auto [mean, deviation] = posterior_of_rejection(1.2);
  const double gamma = 3 + 4 + 6;
  return {{gaussian, {8, 9}, "mu", 7.25, std::sqrt(1 / 1.2)},
          {counting, {4, 6}, "rate", gamma / 3, std::sqrt(gamma) / 3},
          {rejecting, {1.2}, "bound", mean, deviation},
          {replacing, {1.2}, "bound", mean, deviation}};
}

TEST(TraceRunTest, NamesAreNumberedWhereTheyComeAgain) {
  const RunResult result = recorded(linear, 1);
  EXPECT_THAT(names_in(result),
              testing::ElementsAre("x", "x#2", "x#3", "x#4", "x#5", "x#6", "x#7", "x#8", "x#9", "x#10"));
  EXPECT_EQ(result.observed.front().size(), 10U);
  EXPECT_NEAR(result.log_ratio, 0, 1e-12);
  EXPECT_EQ(recorded(linear, 1).draws[4].row, result.draws[4].row);
  EXPECT_NE(recorded(linear, 2).draws[4].row, result.draws[4].row);
}

TEST(TraceRunTest, OnlyTheLastDrawOfALoopCounts) {
  for (Model model : {rejecting, replacing}) {
    for (std::uint64_t seed = 1; seed < 30; ++seed) {
      const RunResult result = recorded(model, seed);
      EXPECT_THAT(names_in(result), testing::ElementsAre("bound", "x"));
      EXPECT_GT(value_in(result, "x"), value_in(result, "bound"));
      EXPECT_EQ(result.draws[1].proposed, model == rejecting);
    }
  }
}

TEST(TraceRunTest, AddressesOfAllKindsAreTheSameInEveryRun) {
  const AddressTable table = table_of(kinds, 50);
  EXPECT_EQ(table.size(), 28U);  // 7 kinds and a pair up to 3 times, and how often
  EXPECT_EQ(table.types().size(), 3U);
  EXPECT_EQ(table.traces(), 50U);
  EXPECT_EQ(table.identity(), table_of(kinds, 60).identity());
  const AddressTable again = parse_address_table(table.to_json().dump(), "a test");
  EXPECT_EQ(again.to_json(), table.to_json());
  EXPECT_EQ(table.summary(), "50 traces of 3 types, 10 to 28 draws, at 28 addresses");
}

TEST(TraceRunTest, AnAddressHasOneKind) {
  AddressTable table;
  table.add({"x", Kind::normal});
  try {
    table.add({"x", Kind::uniform});
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_STREQ(
        error.what(),
        "the address 'x' was normal and now is uniform: each distribution needs an address of its own");
  }
}

TEST(TraceRunTest, MistakesAreSentences) {
  const std::vector<std::string> expected = {"'deviation' is normal: its standard deviation is -1",
                                             "value 0 of 'y' was not observed",
                                             "'z' is observed, and the plugin has no such array",
                                             "value 7 of 'y' is observed, which has 1",
                                             "'y' is normal: parameter 0 is ",
                                             "the tag 'tag' is nan"};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_THAT(recorded(mistaken, 1, i).mistake, testing::StartsWith(expected[i])) << i;
  EXPECT_EQ(recorded(mistaken, 1, 7).mistake, "");
}

TEST(TracePosteriorTest, PriorDrawsWithWeightsGiveThePosterior) {
  for (const Known& known : known_posteriors()) {
    PriorSampler sampler;
    const Moments found = weighted(known.model, known.truth, sampler, 200000, draw_called(known.name));
    EXPECT_NEAR(found.mean, known.mean, 0.04 * known.deviation) << known.name;
    EXPECT_NEAR(found.deviation, known.deviation, 0.04 * known.deviation) << known.name;
  }
}

TEST(TracePosteriorTest, TheEvidenceOfTheGaussianIsKnown) {
  PriorSampler sampler;
  const Moments found = weighted(gaussian, {8, 9}, sampler, 200000, draw_called("mu"));
  // (8, 9) has the mean (1, 1) and the covariance 5 + 2 on the diagonal, 5 beside it.
  const double determinant = 7 * 7 - 5 * 5;
  const double distance = (7.0 * 49 - 2 * 5.0 * 7 * 8 + 7.0 * 64) / determinant;
  EXPECT_NEAR(found.log_evidence, -0.5 * distance - 0.5 * std::log(determinant) - std::log(2 * M_PI), 0.03);
}

TEST(TracePosteriorTest, ProposalsOfAnyNetworkGiveThePosterior) {
  const std::vector<float> embedding = {0.5F, -1};
  for (const Known& known : known_posteriors()) {
    const ProposalNetwork network = network_of(table_of(known.model, 20));
    ProposalSampler sampler(network, embedding);
    const Moments found = weighted(known.model, known.truth, sampler, 60000, draw_called(known.name));
    EXPECT_NEAR(found.mean, known.mean, 0.12 * known.deviation) << known.name << " " << found.effective;
    EXPECT_NEAR(found.deviation, known.deviation, 0.12 * known.deviation) << known.name;
    EXPECT_EQ(sampler.unknown(), 0U);
  }
}

TEST(TracePosteriorTest, UnknownAddressesAreDrawnFromThePrior) {
  const ProposalNetwork network = network_of(table_of(gaussian, 3));
  ProposalSampler sampler(network, std::vector<float>{0, 0});
  Random random(1);
  const RunResult result = run_of(counting, {4, 6}, sampler, random);
  EXPECT_EQ(sampler.unknown(), 1U);
  EXPECT_NEAR(result.log_ratio, 0, 1e-12);
}

Moments followed(Model model, const std::vector<double>& truth, int steps,
                 const std::function<double(const RunResult&)>& value) {
  Random random(17);
  Chain chain([&](Sampler& sampler, Random& numbers) { return run_of(model, truth, sampler, numbers); },
              random);
  double first = 0, second = 0;
  int states = 0;
  for (int i = 0; i < steps; ++i) {
    chain.step();
    if (i < steps / 10) continue;
    const double x = value(chain.state());
    first += x;
    second += x * x;
    ++states;
  }
  const double mean = first / states;
  return {mean, std::sqrt(second / states - mean * mean)};
}

TEST(TraceChainTest, ChainsGoToThePosterior) {
  for (const Known& known : known_posteriors()) {
    const Moments found = followed(known.model, known.truth, 100000, draw_called(known.name));
    EXPECT_NEAR(found.mean, known.mean, 0.06 * known.deviation) << known.name;
    EXPECT_NEAR(found.deviation, known.deviation, 0.06 * known.deviation) << known.name;
  }
}

TEST(TraceChainTest, ChainsMoveBetweenBranches) {
  const auto sum = [](const RunResult& result) { return result.tags.at("sum"); };
  const auto branch = draw_called("branch");
  PriorSampler sampler;
  for (const auto& value : {std::function<double(const RunResult&)>(sum), branch}) {
    const Moments weights = weighted(branching, {1.5}, sampler, 300000, value);
    const Moments found = followed(branching, {1.5}, 150000, value);
    EXPECT_NEAR(found.mean, weights.mean, 0.05 * weights.deviation);
    EXPECT_NEAR(found.deviation, weights.deviation, 0.05 * weights.deviation);
  }
}

TEST(ProposalNetworkTest, DamagedFilesAreRefused) {
  const AddressTable table = table_of(gaussian, 3);
  const ProposalNetwork::Sizes sizes = {1, 2, 1};
  const std::size_t count = ProposalNetwork::parameter_count(sizes, table);
  std::string text = ProposalNetwork::text(sizes, table, std::vector<float>(count, 0.5F));
  EXPECT_EQ(ProposalNetwork::parse(text, "f").table().size(), 1U);
  text[text.size() / 2] ^= 1;
  EXPECT_ANY_THROW(ProposalNetwork::parse(text, "f"));
  EXPECT_ANY_THROW(ProposalNetwork::parse(text.substr(0, 20), "f"));
  EXPECT_ANY_THROW(ProposalNetwork::parse("", "f"));
}

}  // namespace
}  // namespace wflow::traces
