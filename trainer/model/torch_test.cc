// SPDX-License-Identifier: Apache-2.0
// The back end against libtorch's autograd, the optimisers against torch::optim, the export against both.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <filesystem>

#include "base/random.h"
#include "trainer/model/model_export.h"
#include "trainer/model/network.h"
#include "trainer/training/evaluation.h"
#include "trainer/training/optimizer.h"

namespace wflow::trainer {
namespace {

std::vector<float> noise(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(2 * unit_real(hash64(seed, i)) - 1);
  return values;
}

// The graph by autograd operations: nothing of the back end's own is used.
torch::Tensor by_autograd(const ModelGraph& graph, std::map<std::string, torch::Tensor>& parameters,
                          torch::Tensor x) {
  for (const Layer& layer : graph.layers) {
    const auto p = [&](std::size_t i) { return parameters.at(layer.parameters[i].name); };
    const std::vector<std::int64_t> kernel(layer.kernel.begin(), layer.kernel.end());
    switch (layer.kind) {
      case LayerKind::convolution: {
        const auto& a = layer.pad_low;
        const auto& b = layer.pad_high;
        x = torch::constant_pad_nd(x, {a[2], b[2], a[1], b[1], a[0], b[0]});
        x = torch::conv3d(x, p(0), layer.parameters.size() > 1 ? p(1) : torch::Tensor());
        break;
      }
      case LayerKind::batch_norm:
        x = torch::batch_norm(x, p(0), p(1), {}, {}, true, 0.1, kNormEpsilon, false);
        break;
      case LayerKind::leaky_relu:
        x = torch::leaky_relu(x, layer.value);
        break;
      case LayerKind::average_pool:
        x = torch::avg_pool3d(x, kernel);
        break;
      case LayerKind::max_pool:
        x = torch::max_pool3d(x, kernel);
        break;
      case LayerKind::flatten:
        x = x.flatten(1);
        break;
      case LayerKind::global_mean:
        x = x.mean({2, 3, 4});
        break;
      case LayerKind::linear:
        x = torch::linear(x, p(0), p(1));
        break;
      case LayerKind::dropout:
        break;
      case LayerKind::tanh_scale:
        x = layer.value * x.tanh();
        break;
    }
  }
  return x;
}

double relative_difference(std::span<const float> a, const torch::Tensor& b) {
  const torch::Tensor flat = b.contiguous().flatten();
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double v = flat.data_ptr<float>()[i];
    difference += (a[i] - v) * (a[i] - v);
    size += v * v;
  }
  return std::sqrt(difference / (size + 1e-12));
}

struct Case {
  const char* name;
  ModelConfig model;
  TensorShape input;
  std::int64_t samples;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

Case make_case(const char* name, ModelName model, std::int64_t width, bool norm, TensorShape input,
               std::int64_t samples, bool tanh = false) {
  Case c = {name, default_model(model), input, samples};
  c.model.width = width;
  c.model.batch_norm = norm;
  c.model.dropout = 0;
  c.model.tanh_output = tanh;
  c.model.dense = {16, 8};
  return c;
}

class NetworkTest : public testing::TestWithParam<Case> {};

TEST_P(NetworkTest, GradientsAreAutograds) {
  const Case& c = GetParam();
  const ModelGraph graph = build_model(c.model, c.input, 3);
  for (const KernelChoice kernels : {KernelChoice::library, KernelChoice::fastest}) {
    FlatState state(graph);
    state.fill_initial_values(1);
    for (const FlatEntry& entry : state.parameters().entries) {
      // Biases and norms away from 0 and 1, where mistakes hide.
      if (!entry.spec.decays) {
        const auto shift = noise(static_cast<std::size_t>(entry.count), 9);
        for (std::size_t i = 0; i < shift.size(); ++i) state.value(entry)[i] += 0.3F * shift[i];
      }
    }
    const auto network = make_torch_network(graph, state, kernels, false);
    const auto x = noise(static_cast<std::size_t>(c.samples * graph.input.count()), 2);
    const auto slope = noise(static_cast<std::size_t>(c.samples * 3), 3);
    std::vector<float> outputs(slope.size());

    std::map<std::string, torch::Tensor> parameters;
    for (const FlatEntry& entry : state.parameters().entries) {
      parameters[entry.spec.name] =
          torch::from_blob(state.value(entry).data(), entry.spec.shape).clone().set_requires_grad(true);
    }
    const auto& e = c.input.extent;
    auto input =
        torch::from_blob(const_cast<float*>(x.data()), {c.samples, c.input.channels, e[0], e[1], e[2]});
    const torch::Tensor expected = by_autograd(graph, parameters, input);
    expected.backward(torch::from_blob(const_cast<float*>(slope.data()), {c.samples, 3}));

    // Twice, with the first pass's leftovers in every buffer.
    for (int round = 0; round < 2; ++round) {
      std::fill(state.gradients().begin(), state.gradients().end(), round == 0 ? NAN : 0.0F);
      network->forward(x, c.samples, {}, outputs);
      std::vector<std::int64_t> ready;
      network->backward(slope, [&](std::int64_t from) { ready.push_back(from); });
      EXPECT_TRUE(std::is_sorted(ready.rbegin(), ready.rend()));
      EXPECT_EQ(ready.back(), state.gradients_begin());
      EXPECT_LT(relative_difference(outputs, expected), 1e-5);
      for (const FlatEntry& entry : state.parameters().entries) {
        EXPECT_LT(relative_difference(state.gradient(entry), parameters.at(entry.spec.name).grad()), 2e-4)
            << entry.spec.name << (kernels == KernelChoice::library ? " library" : " fastest");
      }
    }
    // With the batch's own statistics as the running ones, prediction is nearly the forward pass.
    state.update_running_statistics(c.samples, 1.0);
    network->values_changed();
    std::vector<float> predicted(outputs.size());
    network->predict(x, c.samples, predicted);
    EXPECT_LT(relative_difference(predicted, expected), c.model.batch_norm ? 2e-2 : 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, NetworkTest,
    testing::Values(make_case("cosmoflow", ModelName::cosmoflow, 4, true, {2, {32, 32, 32}}, 3),
                    make_case("cosmoflow_one_sample", ModelName::cosmoflow, 4, true, {2, {16, 16, 16}}, 1),
                    make_case("cosmoflow_without_norm", ModelName::cosmoflow, 4, false, {3, {16, 16, 16}}, 2),
                    make_case("cosmoflow_wide", ModelName::cosmoflow, 16, true, {1, {16, 16, 16}}, 2),
                    make_case("cosmoflow_odd", ModelName::cosmoflow, 3, true, {1, {18, 13, 21}}, 3),
                    make_case("cosmoflow_picture", ModelName::cosmoflow, 4, true, {1, {1, 32, 32}}, 4),
                    make_case("mlperf", ModelName::mlperf, 4, false, {4, {16, 16, 16}}, 2, true),
                    make_case("mlperf_norm", ModelName::mlperf, 5, true, {1, {17, 17, 17}}, 2),
                    make_case("sc18", ModelName::sc18, 2, false, {1, {32, 32, 32}}, 2)),
    [](const auto& test) { return test.param.name; });

TEST(Dropout, DependsOnThePlaceInTheGlobalBatchAndNotOnTheRank) {
  ModelConfig model = default_model(ModelName::mlperf);
  model.width = 2;
  const ModelGraph graph = build_model(model, {1, {8, 8, 8}}, 2);
  FlatState state(graph);
  state.fill_initial_values(1);
  const auto network = make_torch_network(graph, state, KernelChoice::fastest, false);
  const auto x = noise(4 * 512, 2);
  std::vector<float> whole(8);
  std::vector<float> parts(8);
  network->forward(x, 4, {1, 5, 0}, whole);
  network->forward(std::span(x).first(2 * 512), 2, {1, 5, 0}, std::span(parts).first(4));
  network->forward(std::span(x).last(2 * 512), 2, {1, 5, 2}, std::span(parts).last(4));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(whole[i], parts[i], 1e-5);
  network->forward(x, 4, {1, 6, 0}, parts);
  EXPECT_NE(whole, parts);
}

struct OptimizerCase {
  const char* name;
  OptimizerConfig config;
};

TEST(Optimizer, TakesTheStepsOfTorchOptim) {
  OptimizerConfig sgd;
  sgd.name = OptimizerName::sgd;
  sgd.weight_decay = 0.01;
  OptimizerConfig nesterov = sgd;
  nesterov.nesterov = true;
  OptimizerConfig adam;
  adam.name = OptimizerName::adam;
  adam.weight_decay = 0.01;
  OptimizerConfig adamw;
  adamw.weight_decay = 0.1;
  for (const OptimizerCase& c :
       {OptimizerCase{"sgd", sgd}, {"nesterov", nesterov}, {"adam", adam}, {"adamw", adamw}}) {
    const std::vector<ParameterSpec> specs = {{"w", {37}, Initial::zero, 1, true},
                                              {"v", {5, 3}, Initial::zero, 1, true}};
    const FlatLayout layout(specs);
    Optimizer optimizer(c.config, layout);
    std::vector<float> values = noise(static_cast<std::size_t>(layout.size), 4);
    std::vector<torch::Tensor> tensors;
    for (const FlatEntry& entry : layout.entries) {
      tensors.push_back(
          torch::from_blob(values.data() + entry.offset, entry.spec.shape).clone().set_requires_grad(true));
    }
    std::unique_ptr<torch::optim::Optimizer> theirs;
    const double rate = 0.01;
    if (c.config.name == OptimizerName::sgd) {
      theirs = std::make_unique<torch::optim::SGD>(
          tensors,
          torch::optim::SGDOptions(rate).momentum(0.9).weight_decay(0.01).nesterov(c.config.nesterov));
    } else if (c.config.name == OptimizerName::adam) {
      theirs =
          std::make_unique<torch::optim::Adam>(tensors, torch::optim::AdamOptions(rate).weight_decay(0.01));
    } else {
      theirs =
          std::make_unique<torch::optim::AdamW>(tensors, torch::optim::AdamWOptions(rate).weight_decay(0.1));
    }
    for (std::uint64_t step = 0; step < 20; ++step) {
      std::vector<float> gradients = noise(static_cast<std::size_t>(layout.size), 100 + step);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const FlatEntry& entry = layout.entries[i];
        tensors[i].mutable_grad() =
            torch::from_blob(gradients.data() + entry.offset, entry.spec.shape).clone();
      }
      theirs->step();
      optimizer.step(values, gradients, rate);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const FlatEntry& entry = layout.entries[i];
      EXPECT_LT(relative_difference(std::span(values).subspan(static_cast<std::size_t>(entry.offset),
                                                              static_cast<std::size_t>(entry.count)),
                                    tensors[i].detach()),
                2e-6)
          << c.name;
    }
  }
}

TEST(Optimizer, DecaysWeightsAloneAndClips) {
  OptimizerConfig config;
  config.name = OptimizerName::sgd;
  config.momentum = 0;
  config.weight_decay = 1;
  const FlatLayout layout({{"w", {1}, Initial::zero, 1, true}, {"b", {1}, Initial::zero, 1, false}});
  std::vector<float> values(static_cast<std::size_t>(layout.size), 1.0F);
  std::vector<float> gradients(values.size(), 0.0F);
  Optimizer(config, layout).step(values, gradients, 0.5);
  EXPECT_FLOAT_EQ(values[0], 0.5F);
  EXPECT_FLOAT_EQ(values[16], 1.0F);
  config.weight_decay = 0;
  config.clip_norm = 0.5;
  values = {0, 0};
  values.resize(static_cast<std::size_t>(layout.size));
  gradients.assign(values.size(), 0.0F);
  gradients[0] = 3;
  gradients[16] = 4;
  Optimizer(config, layout).step(values, gradients, 1);
  EXPECT_NEAR(values[0], -0.3F, 1e-6);
  EXPECT_NEAR(values[16], -0.4F, 1e-6);
}

TEST(Export, PredictsAsTheNetworkDoes) {
  for (const Case& c : {make_case("cosmoflow", ModelName::cosmoflow, 4, true, {2, {16, 16, 16}}, 2),
                        make_case("mlperf", ModelName::mlperf, 4, false, {1, {16, 16, 16}}, 2, true),
                        make_case("sc18", ModelName::sc18, 2, false, {1, {32, 32, 32}}, 2)}) {
    const ModelGraph graph = build_model(c.model, c.input, 2);
    FlatState state(graph);
    state.fill_initial_values(1);
    const auto network = make_torch_network(graph, state, KernelChoice::fastest, false);
    std::vector<float> x = noise(static_cast<std::size_t>(c.samples * graph.input.count()), 2);
    for (float& v : x) v += 1.5F;
    const auto channels = static_cast<std::size_t>(c.input.channels);
    const Normalisation normalisation = {
        std::vector<double>(channels, 0.25), std::vector<double>(channels, 2), {1, 2}, {3, 4}};
    const TransformConfig transform = {TransformName::log, 0.5};
    const std::string path = testing::TempDir() + "wflow-export-" + c.name + ".pt";
    export_model(graph, state, transform, normalisation, {"a", "b"}, path);
    torch::jit::Module module = torch::jit::load(path);
    std::filesystem::remove(path);
    const auto& e = c.input.extent;
    const torch::Tensor raw =
        torch::from_blob(x.data(), {c.samples, c.input.channels, e[0], e[1], e[2]}).clone();
    const torch::Tensor y = module.forward({raw}).toTensor();
    EXPECT_EQ(module.attr("targets").toList().size(), 2U);

    apply_transform(transform, x);
    for (float& v : x) v = (v - 0.25F) / 2;
    std::vector<float> outputs(4);
    network->predict(x, c.samples, outputs);
    for (std::size_t i = 0; i < 4; ++i) {
      const double expected = outputs[i] * normalisation.y_std[i % 2] + normalisation.y_mean[i % 2];
      EXPECT_NEAR(y.flatten()[static_cast<std::int64_t>(i)].item<double>(), expected,
                  1e-4 * std::abs(expected) + 1e-6);
    }
  }
}

}  // namespace
}  // namespace wflow::trainer
