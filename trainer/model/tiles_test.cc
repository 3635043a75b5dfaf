// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/tiles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/yaml.h"
#include "trainer/config.h"
#include "trainer/model/distribution.h"
#include "trainer/model/network.h"

namespace wflow::trainer {
namespace {

std::vector<float> noise(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(unit_real(hash64(seed, i))) * 2 - 1;
  return values;
}

ModelGraph graph_of(const std::string& layers, const TensorShape& field) {
  yaml::Diagnostics diagnostics("model");
  const std::vector<std::string> inputs = {"x"};
  ModelConfig model = default_model(ModelName::layers);
  model.layers = read_layers(yaml::parse(layers, diagnostics), inputs, diagnostics);
  EXPECT_EQ(diagnostics.to_string(), "");
  return build_model(model, {{{"x", field}}, {2, {1, 1, 1}}});
}

// Outputs of both passes, gradients of all parameters and of the input.
std::vector<std::vector<float>> results_of(const ModelGraph& graph, KernelChoice kernels) {
  constexpr std::int64_t kSamples = 2;
  FlatState state(graph);
  state.fill_initial_values(1);
  for (float& value : state.values()) value += 0.01F;
  const auto network = make_torch_network(graph, state, kernels, false);
  const auto x = noise(static_cast<std::size_t>(kSamples * graph.input().count()), 1);
  std::vector<float> predicted(static_cast<std::size_t>(kSamples * graph.output_count()));
  network->predict(x, kSamples, predicted);
  std::vector<float> outputs(predicted.size());
  network->forward(x, kSamples, {}, outputs);
  network->backward(noise(outputs.size(), 3), [](std::int64_t) {});
  std::vector<std::vector<float>> results = {predicted, outputs};
  for (const FlatEntry& entry : state.parameters().entries) {
    const std::span<const float> gradient = state.gradient(entry);
    results.emplace_back(gradient.begin(), gradient.end());
  }
  results.emplace_back(x.size());
  network->input_gradient(results.back());
  return results;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  double scale = 1e-6;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return most / scale;
}

// Numbers of a fixed sequence.
struct Draw {
  std::uint64_t drawn = 0;
  std::uint64_t below(std::uint64_t count) { return hash64(7, drawn++) % count; }
};

std::string random_layer(Draw& random) {
  const auto up_to = [&](std::uint64_t n) { return random.below(n); };
  const auto one_of = [&](std::initializer_list<const char*> words) {
    return *(words.begin() + up_to(words.size()));
  };
  switch (up_to(4)) {
    case 0:
      return fmt::format("- {{{}: {}}}\n", one_of({"average_pool", "max_pool"}), 2 + up_to(2));
    case 1:
      return fmt::format(
          "- {}\n", one_of({"relu", "leaky_relu", "tanh", "gelu", "elu", "silu", "softplus", "sigmoid"}));
    default:
      return fmt::format(
          "- {{convolution: {}, kernel: {}, stride: {}, dilation: {}, padding: {}, bias: {}}}\n",
          one_of({"3", "8", "16"}), 1 + up_to(4), 1 + up_to(4) / 3, 1 + up_to(4) / 3,
          one_of({"same", "same", "valid"}), one_of({"true", "false"}));
  }
}

std::string random_layers(Draw& random) {
  std::string layers;
  for (std::uint64_t i = 2 + random.below(4); i > 0; --i) layers += random_layer(random);
  return layers + "- global_mean\n- {dense: 2}\n";
}

// Every chain of random networks, in fields of one to three dimensions and of uneven lengths: the numbers are
// those of the whole field.
TEST(Tiles, GiveTheGradientsOfTheWholeField) {
  Draw random;
  int chains = 0;
  for (int round = 0; round < 60; ++round) {
    const std::int64_t length = 20 + static_cast<std::int64_t>(random.below(20));
    TensorShape field = {1 + static_cast<std::int64_t>(random.below(4)), {1, 1, length}};
    if (round % 3 != 0) field.extent[1] = field.extent[2];
    if (round % 3 == 2) field.extent = {length, 9, 8};
    const std::string layers = random_layers(random);
    SCOPED_TRACE(layers + text_of(field));
    ModelGraph graph;
    try {
      graph = graph_of(layers, field);
    } catch (const Error&) {
      continue;  // a window that is larger than what is left of the field
    }
    graph.learns_input = true;
    const auto expected = results_of(graph, KernelChoice::library);
    for (std::size_t first = 0; first + 2 < graph.layers.size(); ++first) {
      const std::size_t count = 1 + random.below(graph.layers.size() - 2 - first);
      const ModelGraph::Tiled tiled = {first, count, 2 + static_cast<std::int64_t>(random.below(5))};
      if (!tiles_fit(graph, tiled)) continue;
      ++chains;
      graph.tiled = {tiled};
      SCOPED_TRACE(describe(cut_into_tiles(graph, tiled), graph));
      for (const KernelChoice kernels :
           {KernelChoice::library, KernelChoice::fastest, KernelChoice::onednn}) {
        const auto found = results_of(graph, kernels);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_LT(difference(found[i], expected[i]), i < 2 ? 1e-5 : 1e-4) << i;
      }
    }
  }
  EXPECT_GT(chains, 60);
}

// Its own cells read only cells that the tile has, and each cell of the output belongs to one tile.
TEST(Tiles, CoverTheFieldOnce) {
  const ModelGraph graph = graph_of(
      "- {convolution: 4}\n- relu\n- {max_pool: 2}\n- {convolution: 8, kernel: 5}\n- relu\n- {average_pool: "
      "2}\n"
      "- global_mean\n- {dense: 2}\n",
      {2, {101, 20, 20}});
  for (std::int64_t tiles = 2; tiles < 8; ++tiles) {
    const TiledChain chain = cut_into_tiles(graph, {0, 6, tiles});
    std::int64_t next = 0;
    for (const TiledChain::Tile& tile : chain.tiles) {
      EXPECT_EQ(tile.own_begin, next);
      next = tile.own_end;
      EXPECT_EQ(tile.input, 4 * tile.output);
      EXPECT_LE(tile.input + chain.graph.input().extent[0], 101);
      // Output j reads from 4 j - 5 on: a convolution of 3, a pool, a convolution of 5, a pool.
      EXPECT_LE(tile.input, std::max<std::int64_t>(0, 4 * tile.own_begin - 5));
      EXPECT_GE(tile.input + chain.graph.input().extent[0],
                std::min<std::int64_t>(101, 4 * tile.own_end + 5));
    }
    EXPECT_EQ(next, graph.layers[5].output.extent[0]);
    EXPECT_GT(chain.work, 1.0);
  }
}

TEST(Tiles, MakeAStepOfALargeFieldSmall) {
  ModelConfig model = default_model(ModelName::mlperf);
  model.width = 16;
  ModelGraph graph = build_model(model, {{{"x", {4, {256, 256, 256}}}}, {4, {1, 1, 1}}});
  graph.recomputes = true;
  const std::int64_t whole = step_bytes(graph, nullptr, 0);
  graph.tiled = best_tiles(graph);
  ASSERT_FALSE(graph.tiled.empty());
  EXPECT_EQ(graph.tiled[0].first, 0U);
  for (const ModelGraph::Tiled& tiled : graph.tiled) EXPECT_LE(cut_into_tiles(graph, tiled).work, 1.25);
  EXPECT_LT(3 * step_bytes(graph, nullptr, 0), whole);
}

// A small field, or a network without a chain, has none.
TEST(Tiles, AreNoneWhereTheySaveNothing) {
  EXPECT_TRUE(
      best_tiles(graph_of("- {convolution: 4}\n- relu\n- {average_pool: 2}\n- global_mean\n- {dense: 2}\n",
                          {2, {4, 4, 4}}))
          .empty());
  EXPECT_TRUE(
      best_tiles(graph_of("- flatten\n- {dense: 64}\n- relu\n- {dense: 2}\n", {2, {1, 8, 8}})).empty());
}

}  // namespace
}  // namespace wflow::trainer
