// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_graph.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "trainer/model/flat_state.h"

namespace wflow::trainer {
namespace {

ModelGraph cube(ModelName name, std::int64_t channels, std::int64_t n, std::int64_t outputs) {
  return build_model(default_model(name), {channels, {n, n, n}}, outputs);
}

// MLPerf HPC's reference has 8.91 M parameters and 192.09 Gflop of convolutions per step at 128^3.
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
  ModelConfig with_norm = default_model(ModelName::cosmoflow);
  with_norm.norm = Norm::batch;
  // 64 x (4 + 8 + 16) weights of the first dense layer read the means of the levels before the last.
  EXPECT_EQ(build_model(with_norm, {2, {32, 32, 32}}, 2).parameter_count(), 22'738 + 64 * 28);
  EXPECT_EQ(cube(ModelName::cosmoflow, 2, 32, 2).parameter_count(), 22'678 + 64 * 28);
  ModelConfig last_alone = default_model(ModelName::cosmoflow);
  last_alone.level_means = false;
  EXPECT_EQ(build_model(last_alone, {2, {32, 32, 32}}, 2).parameter_count(), 22'678);
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
      ModelConfig config = default_model(name);
      config.level_means = false;  // a chain of layers
      const ModelGraph graph = build_model(config, {2, {n, n, n}}, 3);
      TensorShape shape = graph.input();
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

// Cicek et al. 2016, section 2: "The architecture has 19069955 parameters in total", with biases of the
// convolutions and without norms.
TEST(ModelGraph, UnetHasThePapersParameters) {
  ModelConfig model = default_model(ModelName::unet);
  model.width = 32;
  model.norm = Norm::none;
  const ModelTask task = {{{"x", {3, {32, 64, 64}}}}, {3, {32, 64, 64}}};
  EXPECT_EQ(build_model(model, task).parameter_count(), 19'069'955);
}

// The network for CIFAR-10 of He et al. 2016 with 20 layers and projections: 272,474 parameters (the paper
// says 0.27 M), 9 convolutions of 3 x 3 cells on each of three grids but the first.
TEST(ModelGraph, ResnetHasThePapersParameters) {
  ModelConfig model = default_model(ModelName::resnet);
  const ModelGraph classic = build_model(model, {3, {1, 32, 32}}, 10);
  EXPECT_EQ(classic.parameter_count(), 272'474);
  model.pre_activation = true;
  // Without norms behind the first convolution (32 values) and the projections (64, 128); the first norms of
  // two levels have half the channels (32, 64); one more norm behind the last block (128).
  EXPECT_EQ(build_model(model, {3, {1, 32, 32}}, 10).parameter_count(),
            272'474 - 32 - 64 - 128 - 32 - 64 + 128);
  model.blocks = 1;
  EXPECT_EQ(std::ranges::count(build_model(model, {3, {1, 32, 32}}, 10).layers, LayerKind::add, &Layer::kind),
            3);
}

// Jegou et al. 2017, table 2: FC-DenseNet67 (5 layers a block, growth 16, 5 grids below the first) has 3.5 M
// parameters, FC-DenseNet56 (4, 12) 1.5 M, for 11 classes.
TEST(ModelGraph, TiramisuHasThePapersParameters) {
  ModelConfig model = default_model(ModelName::tiramisu);
  model.depth = 5;
  const ModelTask task = {{{"x", {3, {1, 224, 224}}}}, {11, {1, 224, 224}}};
  EXPECT_NEAR(static_cast<double>(build_model(model, task).parameter_count()), 1.45e6, 0.1e6);
  model.blocks = 5;
  model.growth = 16;
  EXPECT_NEAR(static_cast<double>(build_model(model, task).parameter_count()), 3.5e6, 0.05e6);
}

TEST(ModelGraph, DeeplabKeepsTheCoarsestGridAndEndsOnTheFinest) {
  const TensorShape field = {16, {1, 96, 145}};
  const ModelGraph graph =
      build_model(default_model(ModelName::deeplab), {{{"x", field}}, {3, field.extent}});
  EXPECT_EQ(graph.shape_of(graph.outputs.front().value), (TensorShape{3, field.extent}));
  std::vector<std::int64_t> dilations;
  std::int64_t least = 96;
  for (const Layer& layer : graph.layers) {
    if (layer.kind != LayerKind::convolution || layer.kernel[2] == 1) continue;
    dilations.push_back(layer.dilation[2]);
    least = std::min(least, layer.output.extent[1]);
  }
  EXPECT_EQ(least, 24);
  EXPECT_THAT(dilations,
              testing::ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 6, 9, 1, 1));
}

// 5 x 256 units on 8 numbers: (8 + 1) * 256 + 4 * (256 + 1) * 256 + (256 + 1) * 3.
TEST(ModelGraph, MlpHasOneWeightAPairAndOneBiasAUnit) {
  ModelConfig model = default_model(ModelName::mlp);
  model.dense = {256, 256, 256, 256, 256};
  EXPECT_EQ(build_model(model, {8, {1, 1, 1}}, 3).parameter_count(), 266'243);
}

TEST(ModelGraph, DecodersAndAutoencodersGiveTheTargetsGrid) {
  const TensorShape field = {2, {32, 48, 16}};
  for (const ModelName name : {ModelName::decoder, ModelName::autoencoder, ModelName::vae, ModelName::unet,
                               ModelName::deeplab, ModelName::tiramisu}) {
    const NamedShape input =
        name == ModelName::decoder ? NamedShape{"a", {5, {1, 1, 1}}} : NamedShape{"x", field};
    const ModelGraph graph = build_model(default_model(name), {{input}, field});
    EXPECT_EQ(graph.shape_of(graph.outputs.front().value), field) << name_of(name);
    EXPECT_EQ(graph.outputs.size(), name == ModelName::vae ? 3U : 1U);
  }
}

std::string refusal(const std::string& layers, const ModelTask& task) {
  yaml::Diagnostics diagnostics("m");
  std::vector<std::string> inputs;
  for (const NamedShape& input : task.inputs) inputs.push_back(input.name);
  ModelConfig model = default_model(ModelName::layers);
  model.layers = read_layers(yaml::parse(layers, diagnostics), inputs, diagnostics);
  EXPECT_EQ(diagnostics.to_string(), "");
  try {
    build_model(model, task);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::spec);
    return error.what();
  }
  return "";
}

TEST(LayerList, SaysWhatDoesNotFit) {
  const ModelTask task = {{{"x", {2, {16, 16, 16}}}, {"a", {1, {1, 1, 1}}}}, {3, {1, 1, 1}}};
  EXPECT_EQ(refusal("[flatten, {dense: 3}]", {{{"x", {2, {16, 16, 16}}}}, {3, {1, 1, 1}}}), "");
  EXPECT_EQ(refusal("[{convolution: 4}, {dense: 3}]", task),
            "the dense layer 'dense1' takes a vector, and 'convolution1' gives a field of 4 x 16 x 16 x 16; "
            "put flatten or "
            "global_mean between them");
  EXPECT_EQ(refusal("[flatten, {dense: 4}]", task),
            "the network's output 'dense1' is 4, and targets and loss want 3");
  EXPECT_EQ(refusal("[{convolution: 4, name: c}, {max_pool: 2}, {add: [max_pool1, c]}]", task),
            "the add layer 'add1' needs channels and cells of its inputs to be equal: 'max_pool1' gives 4 x "
            "8 x 8 x 8 and "
            "'c' gives 4 x 16 x 16 x 16");
  EXPECT_EQ(
      refusal("[{convolution: 4, name: c}, {concatenate: [a, c]}]", task),
      "the concatenate layer 'concatenate1' needs cells of its inputs to be equal: 'a' gives 1 and 'c' gives "
      "4 x 16 x 16 x 16");
  EXPECT_EQ(refusal("[{convolution: 4, kernel: 20, padding: valid}, flatten, {dense: 3}]", task),
            "the window of the convolution 'convolution1' has 20 cells along an axis and 'x' gives 2 x 16 x "
            "16 x 16; use a "
            "smaller kernel or 'padding: same'");
  EXPECT_EQ(refusal("[{max_pool: 32}, flatten, {dense: 3}]", task),
            "the max_pool 'max_pool1' has windows of 32 cells and 'x' gives 2 x 16 x 16 x 16");
  EXPECT_EQ(refusal("[{convolution: 6}, {group_norm: 4}, flatten, {dense: 3}]", task),
            "the group norm 'group_norm1' can't divide the 6 channels of 'convolution1' into 4 groups");
  EXPECT_EQ(
      refusal("[{convolution: 2}, {reshape: [3, 5]}, flatten, {dense: 3}]", task),
      "the reshape 'reshape1' makes 3 x 1 x 1 x 5 (15 values) of 'convolution1', which gives 8192 values");
  EXPECT_EQ(refusal("[{convolution: 2}, {dense: 3, from: a}]", task),
            "nothing reads the layer 'convolution1': remove it, or name it in 'from' of another layer or in "
            "'outputs'");
  EXPECT_EQ(refusal("[{convolution: 4, groups: 4}, flatten, {dense: 3}]", task),
            "the convolution 'convolution1' can't divide the 2 channels of 'x' into 4 groups");
  EXPECT_EQ(refusal("[{convolution: 3, groups: 2}, flatten, {dense: 3}]", task),
            "the convolution 'convolution1' can't divide the 3 channels that it gives into 2 groups");
  EXPECT_THAT(refusal("[{convolution: 4, dilation: 8, padding: valid}, flatten, {dense: 3}]", task),
              testing::HasSubstr("the window of the convolution 'convolution1' has 17 cells along an axis"));
  EXPECT_EQ(refusal("[{convolution: 4, dilation: 17, padding: periodic}, flatten, {dense: 3}]", task),
            "the convolution 'convolution1' needs a border of 17 cells, and 'x' gives 2 x 16 x 16 x 16: a "
            "periodic border can't be wider than the field; use a smaller kernel or dilation, or 'padding: "
            "same'");
  EXPECT_EQ(refusal("[{convolution: 4, dilation: 16, padding: periodic}, flatten, {dense: 3}]", task), "");
  EXPECT_EQ(refusal("[{pixel_shuffle: 2}, flatten, {dense: 3}]", task),
            "the pixel_shuffle 'pixel_shuffle1' makes 8 cells of as many channels, and 'x' gives 2 channels, "
            "which is no multiple");
  EXPECT_EQ(refusal("[{slice: [1, 3]}, flatten, {dense: 3}]", task),
            "the slice 'slice1' takes 1 to 2 of the 2 channels of 'x', which are numbered 0 to 1");
  EXPECT_EQ(refusal("[{slice: [4, 17], axis: depth}, flatten, {dense: 3}]", task),
            "the slice 'slice1' takes 4 to 16 of the 16 cells of 'x', which are numbered 0 to 15");
  EXPECT_EQ(refusal("[{gather: [0, 2]}, flatten, {dense: 3}]", task),
            "the gather 'gather1' takes channel 2 of 'x', whose channels are 0 to 1");
  EXPECT_EQ(refusal("[{resize: [8, 8]}, flatten, {dense: 3}]", task),
            "the resize 'resize1' names the cells of 2 axes, and the fields have 3");
  EXPECT_EQ(refusal("[{resize: 0.05}, flatten, {dense: 3}]", task),
            "the resize 'resize1' by 0.05 leaves no cell of 'x', which gives 2 x 16 x 16 x 16");
  EXPECT_EQ(
      refusal("[{embedding: 2, classes: 3}, flatten, {dense: 3}]", task),
      "the embedding 'embedding1' reads class numbers: 'from' must name an input of one channel, and 'x' is "
      "an input of 2 channels");
  EXPECT_EQ(refusal("[{dense: 1, from: a}, {embedding: 2, classes: 3}, flatten, {dense: 3}]", task),
            "the embedding 'embedding1' reads class numbers: 'from' must name an input of one channel, and "
            "'dense1' is a layer");
  EXPECT_EQ(
      refusal("[{instance_norm: a}, flatten, {dense: 3}]", task),
      "the instance_norm 'instance_norm1' takes mean and deviation over the cells of a field, and 'a' gives "
      "1 numbers; use layer_norm");
  EXPECT_THAT(refusal("[flatten, {dense: 1000000}, {dense: 3}]", task),
              testing::HasSubstr("would have 8192000000 weights"));
}

TEST(Families, SayWhatDoesNotFit) {
  const auto refusal_of = [](ModelName name, const ModelTask& task) {
    try {
      build_model(default_model(name), task);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const NamedShape cube = {"x", {1, {16, 16, 16}}};
  EXPECT_THAT(refusal_of(ModelName::unet, {{cube}, {2, {1, 1, 1}}}),
              testing::HasSubstr("the network 'unet' gives a field, and the targets are 2 numbers"));
  EXPECT_THAT(
      refusal_of(ModelName::cnn, {{cube}, {1, {16, 16, 16}}}),
      testing::HasSubstr("the network 'cnn' gives numbers, and the target is a field of 1 x 16 x 16 x 16"));
  EXPECT_THAT(refusal_of(ModelName::unet, {{{"x", {1, {12, 16, 16}}}}, {1, {12, 16, 16}}}),
              testing::HasSubstr("12 cells along an axis are no multiple of 8; use another 'depth' or grid"));
  EXPECT_EQ(
      refusal_of(ModelName::deeplab, {{cube}, {1, {8, 16, 16}}}),
      "the network 'deeplab' gives a field of as many cells as it reads (1 x 16 x 16 x 16), and the target "
      "has 1 x 8 x 16 x 16");
  EXPECT_EQ(
      refusal_of(ModelName::tiramisu, {{{"x", {1, {1, 7, 40}}}}, {1, {1, 7, 40}}}),
      "the network 'tiramisu' of depth 3 halves each axis 3 times, and the samples are 1 x 1 x 7 x 40: use a "
      "smaller 'depth'");
  EXPECT_THAT(refusal_of(ModelName::resnet, {{cube}, {1, {16, 16, 16}}}),
              testing::HasSubstr("gives numbers"));
  EXPECT_THAT(refusal_of(ModelName::cosmoflow, {{cube, {"a", {}}}, {2, {1, 1, 1}}}),
              testing::HasSubstr("reads fields of one grid, and 'inputs' names x"));
  EXPECT_THAT(refusal_of(ModelName::cnn, {{{"a", {}}, {"b", {}}}, {1, {1, 1, 1}}}),
              testing::HasSubstr("at least 8 cells"));
  EXPECT_THAT(refusal_of(ModelName::decoder, {{{"a", {}}}, {1, {33, 33, 33}}}),
              testing::HasSubstr("can be halved only 0 times"));
}

TEST(ModelGraph, FieldsOfSeveralGridsAndNumbersBecomeOneVector) {
  const ModelTask task = {
      {{"x", {1, {16, 16, 16}}}, {"a", {}}, {"map", {2, {1, 32, 32}}}, {"b", {}}, {"y", {1, {16, 16, 16}}}},
      {3, {1, 1, 1}}};
  for (const ModelName name : {ModelName::cnn, ModelName::autoencoder}) {
    ModelTask both = task;
    if (name == ModelName::autoencoder) both.output = {1, {16, 16, 16}};
    const ModelGraph graph = build_model(default_model(name), both);
    const auto all = std::ranges::find(graph.layers, "all_inputs", &Layer::name);
    ASSERT_NE(all, graph.layers.end());
    EXPECT_EQ(all->inputs.size(), 4U);  // two grids, and two numbers
    const auto first = std::ranges::find(graph.layers, "conv1", &Layer::name);
    EXPECT_EQ(first->input.channels, 2);
    std::set<std::string> names;
    for (const Layer& layer : graph.layers) EXPECT_TRUE(names.insert(layer.name).second) << layer.name;
  }
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

std::string initials(const ModelGraph& graph) {
  std::string text;
  for (const Layer& layer : graph.layers) {
    if (layer.parameters.empty() || layer.kind == LayerKind::batch_norm) continue;
    text += layer.name + ":";
    for (const ParameterSpec& spec : layer.parameters) {
      text += spec.initial == Initial::he_normal ? " he"
              : spec.initial == Initial::uniform ? " uniform"
                                                 : " zero";
    }
    text += "\n";
  }
  return text;
}

std::string initials_of(ModelName name, InitialWeights rule) {
  ModelConfig model = default_model(name);
  model.initial = rule;
  return initials(build_model(model, {4, {1, 8, 8}}, 3));
}

TEST(InitialWeights, FollowPlaceAndActivation) {
  EXPECT_EQ(
      initials_of(ModelName::mlp, InitialWeights::automatic),
      "dense1: uniform uniform\ndense2: uniform uniform\ndense3: uniform uniform\nout: uniform uniform\n");
  EXPECT_EQ(initials_of(ModelName::cnn, InitialWeights::automatic),
            "conv1: he uniform\nconv2: he uniform\nconv3: he uniform\ndense1: uniform uniform\n"
            "out: uniform uniform\n");
  EXPECT_EQ(initials_of(ModelName::cnn, InitialWeights::he),
            "conv1: he zero\nconv2: he zero\nconv3: he zero\ndense1: he zero\nout: he zero\n");
  EXPECT_EQ(initials_of(ModelName::cnn, InitialWeights::torch),
            "conv1: uniform uniform\nconv2: uniform uniform\nconv3: uniform uniform\n"
            "dense1: uniform uniform\nout: uniform uniform\n");
  EXPECT_EQ(initials_of(ModelName::cnn, InitialWeights::data),
            initials_of(ModelName::cnn, InitialWeights::he));
  // A convolution that is the output, or that a tanh follows, has no rectifier.
  yaml::Diagnostics diagnostics("m");
  ModelConfig model = default_model(ModelName::layers);
  const std::vector<std::string> inputs = {"x"};
  model.layers = read_layers(
      yaml::parse("[{convolution: 4}, batch_norm, {max_pool: 2}, relu, {convolution: 4, bias: false}, tanh, "
                  "{convolution: 4, init: zero}, silu, {convolution: 4, init: torch}, elu, {convolution: 2}]",
                  diagnostics),
      inputs, diagnostics);
  ASSERT_EQ(diagnostics.to_string(), "");
  EXPECT_EQ(initials(build_model(model, {{{"x", {1, {1, 8, 8}}}}, {2, {1, 4, 4}}})),
            "convolution1: he uniform\nconvolution2: uniform\nconvolution3: zero zero\n"
            "convolution4: uniform uniform\nconvolution5: uniform uniform\n");
}

TEST(InitialWeights, UniformOnesAreThoseOfPyTorch) {
  const ModelGraph graph = build_model(default_model(ModelName::mlp), {100, {1, 1, 1}}, 1);
  for (const ParameterSpec& spec : graph.layers.front().parameters) {
    std::vector<float> values(static_cast<std::size_t>(spec.count()));
    fill_initial(spec, 1, values);
    const auto [least, most] = std::ranges::minmax(values);
    EXPECT_GE(least, -0.1F) << spec.name;
    EXPECT_LT(least, -0.095F) << spec.name;
    EXPECT_LE(most, 0.1F) << spec.name;
    EXPECT_GT(most, 0.095F) << spec.name;
  }
}

std::string layers_of(const ModelConfig& model, const ModelTask& task) {
  std::string text;
  try {
    for (const Layer& layer : build_model(model, task).layers) {
      text += fmt::format("{} {} from {} kernel {} dilation {} padding {} value {} to {}", layer.name,
                          name_of(layer.kind), fmt::join(layer.inputs, ","), fmt::join(layer.kernel, ","),
                          fmt::join(layer.dilation, ","), fmt::join(layer.pad_low, ","), layer.value,
                          text_of(layer.output));
      for (const ParameterSpec& spec : layer.parameters)
        text += fmt::format(" {} {}", spec.name, fmt::join(spec.shape, ","));
      text += "\n";
    }
  } catch (const Error& error) {
    text += error.what();
  }
  return text;
}

// Every key that changes the layers of no task is warned of, and no other.
TEST(ModelGraph, KeysWithoutEffectAreWarnedOf) {
  const TensorShape cube = {2, {16, 16, 16}};
  const TensorShape series = {2, {1, 1, 16}};
  const TensorShape numbers = {3, {1, 1, 1}};
  const std::vector<ModelTask> tasks = {
      {{{"x", cube}}, numbers},    {{{"x", cube}}, cube, {{"b", numbers}}, "a"},
      {{{"x", cube}}, cube},       {{{"x", numbers}}, cube},
      {{{"x", numbers}}, numbers}, {{{"x", series}}, numbers},
      {{{"x", series}}, series}};
  const std::map<std::string, std::string> values = {
      {"width", "24"},      {"dropout", "0.25"},     {"norm", "group"},      {"leaky_slope", "0.123"},
      {"dense", "[5]"},     {"activation", "tanh"},  {"depth", "5"},         {"latent", "7"},
      {"modes", "3"},       {"blocks", "5"},         {"growth", "7"},        {"pre_activation", "true"},
      {"dilations", "[2]"}, {"tanh_output", "true"}, {"level_means", "true"}};
  for (ModelName name = ModelName::cosmoflow; name <= ModelName::conv_lstm;
       name = static_cast<ModelName>(static_cast<int>(name) + 1)) {
    for (auto [key, value] : values) {
      if (name == ModelName::cosmoflow && key == "level_means") value = "false";
      std::string others = fmt::format("name: {}", name_of(name));
      if (key != "dense") others += ", dense: [6]";
      if (key == "leaky_slope") others += ", activation: leaky_relu";
      yaml::Diagnostics diagnostics("m");
      const auto model = [&](const std::string& keys) {
        return read_train_config(yaml::parse("{data: d, model: {" + keys + "}}", diagnostics), diagnostics)
            .model;
      };
      const ModelConfig usual = model(others);
      const ModelConfig changed = model(others + ", " + key + ": " + value);
      const bool has_effect = std::ranges::any_of(
          tasks, [&](const ModelTask& task) { return layers_of(usual, task) != layers_of(changed, task); });
      const bool is_warned_of =
          diagnostics.to_string().find("'" + key + "' has no effect") != std::string::npos;
      EXPECT_NE(has_effect, is_warned_of) << key << ": " << diagnostics.to_string() << name_of(name);
      EXPECT_FALSE(diagnostics.has_errors()) << diagnostics.to_string();
    }
  }
}

// torch.nn.ConvTranspose2d(4, 2, 5).weight lies within 1 / sqrt(2 * 25) of 0: PyTorch counts the output
// channels.
TEST(InitialWeights, OfTransposedConvolutionsCountOutputsAsPyTorch) {
  yaml::Diagnostics diagnostics("m");
  ModelConfig model = default_model(ModelName::layers);
  const std::vector<std::string> inputs = {"x"};
  model.layers = read_layers(
      yaml::parse("[{transposed_convolution: 2, kernel: 5, stride: 2, padding: same}]", diagnostics), inputs,
      diagnostics);
  ASSERT_EQ(diagnostics.to_string(), "");
  const NamedShape input{"x", {4, {1, 8, 8}}};
  model.initial = InitialWeights::torch;
  const Layer layer = build_model(model, {{input}, {2, {1, 16, 16}}}).layers.front();
  EXPECT_EQ(layer.parameters[0].fan_in, 2 * 25);
  EXPECT_EQ(layer.parameters[1].fan_in, 2 * 25);
  // With stride 2, two windows of 5 cells reach an output cell along each axis.
  model.initial = InitialWeights::he;
  EXPECT_EQ(build_model(model, {{input}, {2, {1, 16, 16}}}).layers.front().parameters[0].fan_in, 4 * 4);
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
