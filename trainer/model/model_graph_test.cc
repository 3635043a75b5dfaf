// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "trainer/model/flat_state.h"

namespace wflow::trainer {
namespace {

ModelGraph cube(ModelName name, std::int64_t channels, std::int64_t n, std::int64_t outputs) {
  return build_model(default_model(name), {channels, {n, n, n}}, outputs);
}

// research/training.md 1.3 and 2.2: 8.91 M parameters and 192.09 Gflop of convolutions a step at 128^3.
TEST(ModelGraph, MlperfHasTheReferencesSize) {
  const ModelGraph graph = cube(ModelName::mlperf, 4, 128, 4);
  EXPECT_NEAR(static_cast<double>(graph.parameter_count()), 8.91e6, 0.01e6);
  EXPECT_NEAR(static_cast<double>(graph.training_flops()) * 1e-9, 192.1, 1.0);
  EXPECT_EQ(cube(ModelName::mlperf, 4, 32, 4).layers.front().output.channels, 32);
}

// The paper has 28.15 MB of parameters and 69.33 Gflop a sample.
TEST(ModelGraph, Sc18HasThePapersSize) {
  const ModelGraph graph = cube(ModelName::sc18, 1, 128, 3);
  EXPECT_EQ(graph.parameter_count(), 7'069'667);
  EXPECT_NEAR(static_cast<double>(graph.parameter_count()) * 4e-6, 28.15, 0.2);
  EXPECT_NEAR(static_cast<double>(graph.training_flops()) * 1e-9, 69.33, 1.5);
  EXPECT_EQ(cube(ModelName::sc18, 1, 32, 3).parameter_count(), graph.parameter_count());
}

TEST(ModelGraph, CosmoflowGrowsWithTheBox) {
  EXPECT_EQ(cube(ModelName::cosmoflow, 2, 32, 2).parameter_count(), 22'738);
  const auto convolutions = [](const ModelGraph& graph) {
    return std::count_if(graph.layers.begin(), graph.layers.end(),
                         [](const Layer& layer) { return layer.kind == LayerKind::convolution; });
  };
  EXPECT_EQ(convolutions(cube(ModelName::cosmoflow, 1, 32, 2)), 4);
  EXPECT_EQ(convolutions(cube(ModelName::cosmoflow, 1, 64, 2)), 5);
  EXPECT_EQ(convolutions(cube(ModelName::cosmoflow, 1, 128, 2)), 6);
}

TEST(ModelGraph, ShapesOfNeighboursAgree) {
  for (const ModelName name : {ModelName::cosmoflow, ModelName::sc18, ModelName::mlperf}) {
    for (const std::int64_t n : {9, 32, 50, 64}) {
      const ModelGraph graph = cube(name, 2, n, 3);
      TensorShape shape = graph.input;
      for (const Layer& layer : graph.layers) {
        EXPECT_EQ(layer.input, shape) << layer.name;
        shape = layer.output;
      }
      EXPECT_EQ(shape.count(), 3);
    }
  }
}

TEST(ModelGraph, PicturesKeepTheirFlatAxis) {
  const ModelGraph graph = build_model(default_model(ModelName::cosmoflow), {1, {1, 64, 64}}, 2);
  EXPECT_EQ(graph.layers.front().kernel, (std::array<std::int64_t, 3>{1, 3, 3}));
}

TEST(ModelGraph, RefusesTinyInputs) {
  EXPECT_THROW(cube(ModelName::cosmoflow, 1, 4, 2), Error);
}

TEST(ModelGraph, InitialValuesDependOnNameAndSeedAlone) {
  const ParameterSpec spec = {"conv1.weight", {40, 40, 3, 3, 3}, Initial::he_normal, 1080, true};
  std::vector<float> a(static_cast<std::size_t>(spec.count()));
  std::vector<float> b(a.size());
  fill_initial(spec, 1, a);
  fill_initial(spec, 1, b);
  EXPECT_EQ(a, b);
  double sum = 0;
  double squares = 0;
  for (const float v : a) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto n = static_cast<double>(a.size());
  EXPECT_NEAR(sum / n, 0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / n), std::sqrt(2.0 / 1080), 1e-3);
  fill_initial(spec, 2, b);
  EXPECT_NE(a, b);
}

TEST(FlatState, PartsDoNotOverlapAndLieOnCacheLines) {
  FlatState state(cube(ModelName::cosmoflow, 2, 32, 2));
  std::int64_t end = 0;
  for (const FlatEntry& entry : state.parameters().entries) {
    EXPECT_GE(entry.offset, end);
    EXPECT_EQ(entry.offset % 16, 0);
    end = entry.offset + entry.count;
  }
  EXPECT_LE(end, static_cast<std::int64_t>(state.gradients().size()));
  EXPECT_EQ(state.gradient(state.parameters().entries[0]).data(), state.gradients().data());
  EXPECT_EQ(state.batch_statistics().data() + state.batch_statistics().size(), state.gradients().data());
}

}  // namespace
}  // namespace wflow::trainer
