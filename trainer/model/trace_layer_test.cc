// SPDX-License-Identifier: Apache-2.0
// The layer trace_density against the evaluation draw by draw (traces/proposal_network.h), and its gradients
// against differences.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "traces/proposal_network.h"
#include "trainer/model/flat_state.h"
#include "trainer/model/network.h"

namespace wflow::trainer {
namespace {

using traces::Kind;

struct DrawAt {
  const char* name;
  Kind kind;
  std::vector<double> p;
  bool proposed = true;
};

const std::vector<DrawAt> kDraws = {{"a", Kind::normal, {1, 2}},
                                    {"b", Kind::uniform, {-1, 4}},
                                    {"c", Kind::categorical, {1, 2, 3}},
                                    {"d", Kind::poisson, {2.5}},
                                    {"e", Kind::exponential, {0.5}},
                                    {"f", Kind::normal, {0, 1}, false},
                                    {"g", Kind::gamma, {2, 3}},
                                    {"h", Kind::beta, {2, 1.5}},
                                    {"i", Kind::truncated_normal, {0, 1, -0.5, 2}}};
constexpr std::int64_t kSteps = 12;
constexpr std::int64_t kSamples = 5;
constexpr std::int64_t kEmbedding = 3;

// Sample n has the draws from number n on, and some of them again.
std::vector<std::size_t> draws_of(std::int64_t n) {
  std::vector<std::size_t> draws;
  for (std::size_t i = static_cast<std::size_t>(n); i < kDraws.size(); ++i) draws.push_back(i);
  for (std::int64_t i = 0; i < n; ++i) draws.push_back(static_cast<std::size_t>(i));
  return draws;
}

class TraceLayerTest : public ::testing::Test {
 protected:
  TraceLayerTest() {
    auto table = std::make_shared<traces::AddressTable>();
    for (const DrawAt& draw : kDraws)
      table->add({draw.name, draw.kind,
                  draw.kind == Kind::categorical ? static_cast<std::uint32_t>(draw.p.size()) : 0U,
                  draw.proposed, 1});
    addresses_ = table;
    ModelConfig model;
    model.name = ModelName::layers;
    LayerConfig density;
    density.kind = LayerKind::trace_density;
    density.name = "density";
    density.from = {"seen", "trace"};
    density.size = 6;
    density.components = 3;
    model.layers = {density};
    ModelTask task;
    task.inputs = {{"seen", {kEmbedding, {1, 1, 1}}}, {"trace", {8, {1, 1, kSteps}}}};
    task.output = {1, {1, 1, 1}};
    task.addresses = addresses_;
    graph_ = build_model(model, task);
    graph_.learns_input = true;
    traces::Random random(3);
    rows_.assign(static_cast<std::size_t>(kSamples * 8 * kSteps), 0.0F);
    for (std::int64_t n = 0; n < kSamples; ++n) {
      std::int64_t step = 0;
      for (const std::size_t i : draws_of(n)) {
        const traces::Distribution prior = {kDraws[i].kind, kDraws[i].p};
        traces::Row row = traces::row_of(traces::address_hash(kDraws[i].name), prior,
                                         traces::draw(prior, random), kDraws[i].proposed);
        for (std::size_t k = 0; k < row.size(); ++k) {
          const auto value = static_cast<float>(row[k]);
          row[k] = static_cast<double>(value);
          rows_[static_cast<std::size_t>((n * 8 + static_cast<std::int64_t>(k)) * kSteps + step)] = value;
        }
        traces_[static_cast<std::size_t>(n)].push_back(row);
        ++step;
      }
    }
    for (std::int64_t i = 0; i < kSamples * kEmbedding; ++i)
      seen_.push_back(static_cast<float>(normal_real(9, static_cast<std::uint64_t>(i))));
  }

  void fill(FlatState& state) {
    std::uint64_t i = 0;
    for (float& value : state.values()) value = 0.4F * static_cast<float>(normal_real(2, i++));
  }

  double sum_of(Network& network) {
    const std::span<const float> inputs[] = {seen_, rows_};
    std::vector<float> outputs(static_cast<std::size_t>(kSamples));
    network.predict(inputs, kSamples, outputs);
    double sum = 0;
    for (const float value : outputs) sum += static_cast<double>(value);
    return sum;
  }

  std::shared_ptr<const traces::AddressTable> addresses_;
  ModelGraph graph_;
  std::vector<float> rows_, seen_;
  std::vector<traces::Row> traces_[kSamples];
};

TEST_F(TraceLayerTest, EqualsTheNetworkDrawByDraw) {
  FlatState state(graph_);
  fill(state);
  const auto network = make_torch_network(graph_, state, KernelChoice::library, false);
  const std::span<const float> inputs[] = {seen_, rows_};
  std::vector<float> outputs(static_cast<std::size_t>(kSamples));
  network->predict(inputs, kSamples, outputs);
  std::vector<float> parameters;
  for (const ParameterSpec& spec : graph_.layers.back().parameters) {
    const auto values = state.value(*state.parameters().find(spec.name));
    parameters.insert(parameters.end(), values.begin(), values.end());
  }
  const traces::ProposalNetwork single({kEmbedding, 6, 3}, *addresses_, parameters);
  for (std::size_t n = 0; n < kSamples; ++n) {
    const auto observed = single.observe(std::span(seen_).subspan(n * kEmbedding, kEmbedding));
    auto at = single.first();
    double sum = 0;
    for (const traces::Row& row : traces_[n]) {
      const std::size_t number =
          *single.number_of(traces::hash_of_halves(row[traces::kHigh], row[traces::kLow]));
      const traces::DrawFeatures features = traces::features_of(row);
      single.step(at, observed, number, features);
      const auto& head = single.head_of(number);
      if (head.form != traces::Proposal::none)
        sum += traces::log_proposal(head.form, single.head(at, number), features, 3);
      at.previous = features;
      at.address = number;
      at.began = true;
    }
    EXPECT_NEAR(outputs[n], -sum, 2e-4 * (1 + std::abs(sum))) << n;
  }
}

TEST_F(TraceLayerTest, GradientsAreThoseOfDifferences) {
  FlatState state(graph_);
  fill(state);
  const auto network = make_torch_network(graph_, state, KernelChoice::library, false);
  const std::span<const float> inputs[] = {seen_, rows_};
  std::vector<float> outputs(static_cast<std::size_t>(kSamples));
  network->forward(inputs, kSamples, {}, outputs);
  const std::vector<float> ones(static_cast<std::size_t>(kSamples), 1.0F);
  network->backward(ones, [](std::int64_t) {});
  const std::vector<float> gradients(state.gradients().begin(), state.gradients().end());
  std::vector<float> of_input(seen_.size());
  network->input_gradient(of_input);
  constexpr float kStep = 5e-3F;
  const auto slope = [&](float& value) {
    const float before = value;
    value = before + kStep;
    network->values_changed();
    const double high = sum_of(*network);
    value = before - kStep;
    network->values_changed();
    const double low = sum_of(*network);
    value = before;
    network->values_changed();
    return (high - low) / (2 * static_cast<double>(kStep));
  };
  for (std::size_t i = 0; i < gradients.size(); i += 23)
    EXPECT_NEAR(gradients[i], slope(state.values()[i]), 0.02 * (1 + std::abs(gradients[i]))) << i;
  for (std::size_t i = 0; i < seen_.size(); ++i)
    EXPECT_NEAR(of_input[i], slope(seen_[i]), 0.02 * (1 + std::abs(of_input[i]))) << i;
}

}  // namespace
}  // namespace wflow::trainer
