// SPDX-License-Identifier: Apache-2.0
// Networks without libtorch: gradients against differences of the loss, and what is refused. The same sources
// as of the build with libtorch, compiled with the stand-in for its headers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/random.h"
#include "trainer/model/direct_kernels.h"
#include "trainer/model/graph_builder.h"
#include "trainer/model/network.h"

namespace wflow::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Value = GraphBuilder::Value;

std::vector<float> noise(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(2 * unit_real(hash64(seed, i)) - 1);
  return values;
}

constexpr std::int64_t kSamples = 3;

const TensorShape kVolume = {2, {4, 4, 8}};
const TensorShape kImage = {2, {1, 4, 8}};

// A network on a field of 2 channels, or on 6 numbers where `build` ignores the field.
ModelGraph graph_of(const std::function<Value(GraphBuilder&)>& build, const TensorShape& field = kVolume) {
  const TensorShape numbers = {6, {1, 1, 1}};
  GraphBuilder builder({{"x", field}, {"p", numbers}}, {field});
  builder.output("y", build(builder));
  ModelGraph graph = builder.finish();
  choose_initial_weights(graph, InitialWeights::torch);
  return graph;
}

// The derivative of sum(weights * outputs) along a direction of all weights of the network.
void expect_gradient(const std::function<Value(GraphBuilder&)>& build, const char* what,
                     const TensorShape& field = kVolume) {
  const ModelGraph graph = graph_of(build, field);
  FlatState state(graph);
  state.fill_initial_values(5);
  state.fill_initial_buffers();
  const auto network = make_torch_network(graph, state);
  std::vector<std::vector<float>> inputs;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    inputs.push_back(noise(static_cast<std::size_t>(kSamples * graph.shape_of(i).count()), 10 + i));
  const std::vector<std::span<const float>> views(inputs.begin(), inputs.end());
  std::vector<float> outputs(static_cast<std::size_t>(kSamples * graph.output_count()));
  const std::vector<float> weights = noise(outputs.size(), 20);
  const auto loss = [&] {
    network->values_changed();
    network->forward(views, kSamples, {}, outputs);
    double sum = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      sum += static_cast<double>(outputs[i]) * static_cast<double>(weights[i]);
    return sum;
  };
  loss();
  network->backward(weights, [](std::int64_t) {});
  const std::vector<float> gradient(state.gradients().begin(), state.gradients().end());
  for (const FlatEntry& entry : state.parameters().entries) {
    const std::vector<float> direction = noise(static_cast<std::size_t>(entry.count), 30);
    const std::span<float> values = state.value(entry);
    const std::vector<float> before(values.begin(), values.end());
    double expected = 0;
    for (std::size_t i = 0; i < direction.size(); ++i)
      expected += static_cast<double>(gradient[static_cast<std::size_t>(entry.offset) + i]) *
                  static_cast<double>(direction[i]);
    constexpr float kStep = 1e-3F;
    const auto moved = [&](float step) {
      for (std::size_t i = 0; i < direction.size(); ++i) values[i] = before[i] + step * direction[i];
      const double result = loss();
      std::copy(before.begin(), before.end(), values.begin());
      return result;
    };
    const double found = (moved(kStep) - moved(-kStep)) / (2 * static_cast<double>(kStep));
    // The step crosses the kinks of some activations.
    EXPECT_NEAR(found, expected, 4e-2 * std::max(1.0, std::abs(expected))) << what << ": " << entry.spec.name;
  }
}

TEST(WithoutTorch, ConvolutionsAndNormsHaveTheirGradients) {
  expect_gradient(
      [](GraphBuilder& b) {
        Value x = b.norm("n1", b.convolution("c1", 0, 16, {}), Norm::batch);
        x = b.pool(LayerKind::average_pool, "p1", b.pointwise(LayerKind::leaky_relu, "a1", x, 0.9),
                   {2, 2, 2});
        x = b.convolution("c2", x, 16, {});
        x = b.pointwise(LayerKind::silu, "a2", b.norm("n2", x, Norm::group, 4));
        return b.linear("d", b.flatten("f", x), 3);
      },
      "batch and group norm");
  expect_gradient(
      [](GraphBuilder& b) {
        const Value x = b.pointwise(LayerKind::elu, "a1", b.convolution("c1", 0, 4, {}));
        const Value y = b.add("sum", {b.convolution("c2", x, 4, {}), x});
        const Value up = b.upsample("u", b.pool(LayerKind::average_pool, "p", y, {2, 2, 2}), 2);
        return b.convolution("c3", b.concatenate("both", {up, x}), 2, {});
      },
      "shortcuts");
}

TEST(WithoutTorch, OtherConvolutionsHaveTheirGradients) {
  for (const GraphBuilder::Window& window :
       {GraphBuilder::Window{.kernel = 3, .stride = 2}, GraphBuilder::Window{.kernel = 1, .stride = 2},
        GraphBuilder::Window{.kernel = 2, .padding = Padding::valid, .bias = false},
        GraphBuilder::Window{.dilation = 2, .groups = 3},
        GraphBuilder::Window{.padding = Padding::periodic}}) {
    expect_gradient(
        [&](GraphBuilder& b) {
          return b.convolution("c3", b.convolution("c2", b.convolution("c1", 0, 6, {}), 6, window), 3,
                               window);
        },
        "a convolution");
  }
}

// The fields are images: on volumes oneDNN has no strided gradients for AVX2, and the layers are refused.
TEST(WithoutTorch, TransposedConvolutionsOfFewChannelsHaveTheirGradients) {
  for (const GraphBuilder::Window& window :
       {GraphBuilder::Window{.kernel = 2, .stride = 2}, GraphBuilder::Window{.kernel = 5, .stride = 2}}) {
    expect_gradient(
        [&](GraphBuilder& b) {
          const Value x = b.transposed_convolution("t1", b.convolution("c1", 0, 6, {}), 3, window);
          return b.transposed_convolution("t2", b.pointwise(LayerKind::leaky_relu, "a", x, 0.9), 1, window);
        },
        "transposed convolutions", kImage);
  }
}

TEST(WithoutTorch, LayersOnNumbersHaveTheirGradients) {
  for (const LayerKind kind : {LayerKind::elu, LayerKind::gelu, LayerKind::silu, LayerKind::sigmoid,
                               LayerKind::tanh, LayerKind::softplus}) {
    expect_gradient(
        [&](GraphBuilder& b) {
          const Value x = b.norm("n", b.linear("d1", 1, 8), Norm::batch);
          return b.linear("d2", b.layer_norm("ln", b.pointwise(kind, "a", x)), 4);
        },
        name_of(kind));
  }
  expect_gradient(
      [](GraphBuilder& b) {
        const Value x = b.linear("d1", 1, 8);
        const Value y = b.pointwise(LayerKind::tanh_scale, "t", b.linear("d2", 1, 8), 2);
        const Value both = b.concatenate("c", {b.subtract("-", x, y), b.stop("x", 1)});
        return b.softmax("s", b.linear("d3", both, 5));
      },
      "joined");
  expect_gradient(
      [](GraphBuilder& b) {
        return b.linear("d2", b.pointwise(LayerKind::dropout, "drop", b.linear("d1", 1, 16), 0.3), 4);
      },
      "dropout");
}

TEST(WithoutTorch, RecurrentLayersHaveTheirGradients) {
  for (const LayerKind kind : {LayerKind::lstm, LayerKind::gru}) {
    expect_gradient(
        [&](GraphBuilder& b) {
          const Value x = b.reshape("r", b.linear("d1", 1, 12), {3, {1, 1, 4}});
          GraphBuilder::Steps steps;
          steps.bidirectional = true;
          return b.recurrent(kind, "l", {x}, 4, steps);
        },
        name_of(kind));
  }
}

TEST(WithoutTorch, GatesAreExactToAFewUnitsOfTheLastPlace) {
  std::vector<float> x;
  for (int i = -200'000; i <= 200'000; ++i)
    x.push_back(static_cast<float>(i) / 2500);  // no multiple of a vector
  std::vector<float> sigmoid(x.size());
  std::vector<float> tanh = x;
  const auto count = static_cast<std::int64_t>(x.size());
  direct_kernels().sigmoid(x.data(), count, sigmoid.data());
  direct_kernels().tanh(tanh.data(), count, tanh.data());
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    largest = std::max({largest, std::abs(sigmoid[i] * (1 + std::exp(-v)) - 1),
                        v == 0 ? std::abs(tanh[i]) : std::abs(tanh[i] / std::tanh(v) - 1)});
  }
  EXPECT_LT(largest, 4e-7);
}

TEST(WithoutTorch, PredictionsUseTheRunningStatistics) {
  const ModelGraph graph =
      graph_of([](GraphBuilder& b) { return b.norm("n", b.linear("d", 1, 4), Norm::batch); });
  FlatState state(graph);
  state.fill_initial_values(1);
  state.fill_initial_buffers();
  const auto network = make_torch_network(graph, state);
  const std::vector<float> field(static_cast<std::size_t>(kSamples * graph.shape_of(0).count()), 0.0F);
  const std::vector<float> numbers = noise(static_cast<std::size_t>(kSamples * 6), 3);
  const std::vector<std::span<const float>> inputs = {field, numbers};
  std::vector<float> trained(12);
  std::vector<float> predicted(12);
  network->forward(inputs, kSamples, {}, trained);
  state.update_running_statistics(kSamples, 1, state.buffers().entries);
  network->predict(inputs, kSamples, predicted);
  // The variance of a prediction is the unbiased one.
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(predicted[i], trained[i] * std::sqrt((kSamples - 1.0) / kSamples), 2e-3);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(WithoutTorch, OthersAreRefused) {
  EXPECT_FALSE(has_torch());
  const ModelGraph graph = graph_of([](GraphBuilder& b) { return b.resize("wide", 0, {4, 4, 12}); });
  FlatState state(graph);
  const auto network = [&](Backend backend) {
    return [&graph, &state, backend] { make_network(backend, Precision::full, graph, state); };
  };
  EXPECT_THAT(refusal(network(Backend::automatic)),
              HasSubstr("the layer 'wide' of the kind resize needs libtorch, and this wflow-train was built "
                        "without libtorch"));
  EXPECT_THAT(refusal(network(Backend::torch)), HasSubstr("'backend: torch' needs libtorch"));
  EXPECT_THAT(refusal([] { module_graph("", "mine.pt", {}); }), HasSubstr("TorchScript file mine.pt needs"));
}

std::vector<float> values_of(const at::Tensor& x) {
  const at::Tensor all = x.contiguous();
  return {all.data_ptr<float>(), all.data_ptr<float>() + all.numel()};
}

TEST(WithoutTorch, ViewsShareMemory) {
  std::vector<float> numbers = {0, 1, 2, 3, 4, 5};
  const at::Tensor x = at::from_blob(numbers.data(), {2, 3}, {});
  EXPECT_THAT(values_of(x.permute({1, 0})), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(values_of(x.narrow(1, 1, 2)), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(values_of(x.select(0, 1)), ElementsAre(3, 4, 5));
  EXPECT_THAT(values_of(x.sum({0})), ElementsAre(3, 5, 7));
  EXPECT_THAT(values_of(x.mean({1})), ElementsAre(1, 4));
  EXPECT_THAT(values_of(at::cat({x, x.narrow(1, 0, 1)}, -1)), ElementsAre(0, 1, 2, 0, 3, 4, 5, 3));
  EXPECT_THAT(values_of(1 - x.select(0, 0)), ElementsAre(1, 0, -1));
  x.narrow(1, 0, 1).zero_();
  x.select(1, 2).mul_(10);
  x.add_(at::from_blob(numbers.data() + 1, {1}, {}).clone());
  EXPECT_THAT(numbers, ElementsAre(1, 2, 21, 1, 5, 51));
  EXPECT_EQ(x.reshape({-1, 2}).sizes().vec(), (std::vector<std::int64_t>{3, 2}));
}

}  // namespace
}  // namespace wflow::trainer
