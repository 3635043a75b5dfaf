// SPDX-License-Identifier: Apache-2.0
// Compares the back end with libtorch's autograd, the optimisers with torch::optim, the export with both.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/random.h"
#include "trainer/model/model_export.h"
#include "trainer/model/network.h"
#include "trainer/model/onednn_block.h"
#include "trainer/model/onednn_convolution.h"
#include "trainer/model/sequence_oracle.h"
#include "trainer/model/state_tensors.h"
#include "trainer/training/objective.h"
#include "trainer/training/optimizer.h"

namespace wflow::trainer {
namespace {

std::vector<float> noise(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(2 * unit_real(hash64(seed, i)) - 1);
  return values;
}

// Row i: weights of the input's cells in the linear interpolation at the centre of output cell i.
torch::Tensor linear_weights(std::int64_t cells, std::int64_t size) {
  torch::Tensor weights = torch::zeros({size, cells});
  for (std::int64_t i = 0; i < size; ++i) {
    const double at = std::clamp(
        (static_cast<double>(i) + 0.5) * static_cast<double>(cells) / static_cast<double>(size) - 0.5, 0.0,
        static_cast<double>(cells - 1));
    const auto low = static_cast<std::int64_t>(at);
    weights[i][low] += 1 - (at - static_cast<double>(low));
    if (low + 1 < cells) weights[i][low + 1] += at - static_cast<double>(low);
  }
  return weights;
}

// Channel ((c * f0 + i) * f1 + j) * f2 + k has the cells at i, j, k of each f0 x f1 x f2 block of channel c.
torch::Tensor shuffled_cells(const torch::Tensor& x, const Layer& layer) {
  using torch::indexing::Slice;
  const auto& f = layer.kernel;
  const auto& e = layer.output.extent;
  torch::Tensor y = torch::zeros({x.size(0), layer.output.channels, e[0], e[1], e[2]});
  const std::int64_t all = f[0] * f[1] * f[2];
  for (std::int64_t n = 0; n < all; ++n) {
    y.index_put_({Slice(), Slice(), Slice(n / (f[1] * f[2]), {}, f[0]), Slice(n / f[2] % f[1], {}, f[1]),
                  Slice(n % f[2], {}, f[2])},
                 x.index({Slice(), Slice(n, {}, all)}));
  }
  return y;
}

torch::Tensor one_layer(const Layer& layer, const std::vector<torch::Tensor>& p,
                        const std::vector<torch::Tensor>& in) {
  const std::vector<std::int64_t> kernel(layer.kernel.begin(), layer.kernel.end());
  const std::vector<std::int64_t> stride(layer.stride.begin(), layer.stride.end());
  const torch::Tensor& x = in.front();
  switch (layer.kind) {
    case LayerKind::convolution: {
      const auto& a = layer.pad_low;
      const auto& b = layer.pad_high;
      const std::vector<std::int64_t> dilation(layer.dilation.begin(), layer.dilation.end());
      const std::vector<std::int64_t> zeros = {0, 0, 0};
      return torch::conv3d(torch::constant_pad_nd(x, {a[2], b[2], a[1], b[1], a[0], b[0]}), p[0],
                           p.size() > 1 ? p[1] : torch::Tensor(), stride, zeros, dilation, layer.groups);
    }
    case LayerKind::transposed_convolution: {
      torch::Tensor y = torch::conv_transpose3d(x, p[0], p.size() > 1 ? p[1] : torch::Tensor(), stride);
      for (std::size_t axis = 0; axis < 3; ++axis)
        y = y.narrow(static_cast<std::int64_t>(axis) + 2, layer.pad_low[axis], layer.output.extent[axis]);
      return y;
    }
    case LayerKind::wrap: {
      const auto& a = layer.pad_low;
      const auto& b = layer.pad_high;
      namespace F = torch::nn::functional;
      return F::pad(x, F::PadFuncOptions({a[2], b[2], a[1], b[1], a[0], b[0]}).mode(torch::kCircular));
    }
    case LayerKind::stop:
      return x.detach();
    case LayerKind::subtract:
      return in[0] - in[1];
    case LayerKind::film: {
      const auto numbers = in[1].reshape({x.size(0), 2, x.size(1), 1, 1, 1});
      return x * (1 + numbers.select(1, 0)) + numbers.select(1, 1);
    }
    case LayerKind::spread:
      return x.reshape({x.size(0), x.size(1), 1, 1, 1}) +
             torch::zeros({1, 1, layer.output.extent[0], layer.output.extent[1], layer.output.extent[2]});
    case LayerKind::batch_norm:
      return torch::batch_norm(x, p[0], p[1], {}, {}, true, 0.1, kNormEpsilon, false);
    case LayerKind::group_norm: {
      auto rows = x.reshape({x.size(0), layer.groups, -1});
      rows = (rows - rows.mean(2, true)) / (rows.var(2, false, true) + kNormEpsilon).sqrt();
      std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
      shape[1] = -1;
      return rows.reshape(x.sizes()) * p[0].reshape(shape) + p[1].reshape(shape);
    }
    case LayerKind::layer_norm: {
      std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
      shape[1] = -1;
      return (x - x.mean(1, true)) / (x.var(1, false, true) + kNormEpsilon).sqrt() * p[0].reshape(shape) +
             p[1].reshape(shape);
    }
    case LayerKind::leaky_relu:
      return torch::leaky_relu(x, layer.value);
    case LayerKind::relu:
      return torch::clamp_min(x, 0);
    case LayerKind::elu:
      return torch::where(x > 0, x, torch::expm1(x));
    case LayerKind::gelu:
      return 0.5 * x * (1 + torch::erf(x / std::sqrt(2.0)));
    case LayerKind::silu:
      return x * torch::sigmoid(x);
    case LayerKind::sigmoid:
      return torch::sigmoid(x);
    case LayerKind::tanh:
      return torch::tanh(x);
    case LayerKind::softplus:
      return torch::log1p(torch::exp(x));
    case LayerKind::tanh_scale:
      return layer.value * x.tanh();
    case LayerKind::dropout:
      return x;
    case LayerKind::average_pool:
      return torch::avg_pool3d(x, kernel);
    case LayerKind::max_pool:
      return torch::max_pool3d(x, kernel);
    case LayerKind::upsample:
      return x.repeat_interleave(kernel[0], 2)
          .repeat_interleave(kernel[1], 3)
          .repeat_interleave(kernel[2], 4);
    case LayerKind::resize: {
      torch::Tensor y = x;
      for (std::int64_t axis = 0; axis < 3; ++axis) {
        const auto a = static_cast<std::size_t>(axis);
        const torch::Tensor weights = linear_weights(layer.input.extent[a], layer.output.extent[a]);
        y = y.movedim(axis + 2, -1).matmul(weights.t()).movedim(-1, axis + 2);
      }
      return y;
    }
    case LayerKind::pixel_shuffle:
      return shuffled_cells(x, layer);
    case LayerKind::slice: {
      const std::int64_t size = layer.axis == 0 ? layer.output.channels : layer.output.extent[layer.axis - 1];
      return x.slice(static_cast<std::int64_t>(layer.axis) + 1, layer.first, layer.first + size);
    }
    case LayerKind::gather: {
      std::vector<torch::Tensor> channels;
      for (const std::int64_t channel : layer.channels) channels.push_back(x.select(1, channel));
      return torch::stack(channels, 1);
    }
    case LayerKind::embedding:
      return torch::one_hot(x.select(1, 0).to(torch::kLong), p[0].size(0))
          .to(torch::kFloat)
          .matmul(p[0])
          .movedim(-1, 1);
    case LayerKind::flatten:
      return x.flatten(1);
    case LayerKind::global_mean:
      return x.mean({2, 3, 4});
    case LayerKind::global_max:
      return x.amax({2, 3, 4});
    case LayerKind::linear:
      return torch::linear(x, p[0], p[1]);
    case LayerKind::softmax:
      return torch::softmax(x, 1);
    case LayerKind::reshape: {
      const auto& e = layer.output.extent;
      return x.reshape({x.size(0), layer.output.channels, e[0], e[1], e[2]});
    }
    case LayerKind::add:
      return in.size() == 2 ? in[0] + in[1] : in[0] + in[1] + in[2];
    case LayerKind::concatenate:
      return torch::cat(in, 1);
    case LayerKind::sample:
    case LayerKind::instance_norm:
    case LayerKind::apply:
    case LayerKind::count:
    case LayerKind::module:
      return x;
    default:
      return sequence_oracle(layer, p, in);
  }
}

// The values of a layer as a field, also where the graph treats one cell as a vector.
torch::Tensor as_field(const torch::Tensor& x, const Layer& layer) {
  const bool windowed = layer.kind == LayerKind::convolution || layer.kind == LayerKind::resize ||
                        layer.kind == LayerKind::wrap;
  return windowed && x.dim() == 2 ? x.reshape({x.size(0), x.size(1), 1, 1, 1}) : x;
}

// The graph by autograd operations, without the back end's own code. All outputs of a sample in a row.
torch::Tensor by_autograd(const ModelGraph& graph, std::map<std::string, torch::Tensor>& parameters,
                          const std::vector<torch::Tensor>& inputs) {
  std::vector<torch::Tensor> values = inputs;
  for (const Layer& layer : graph.layers) {
    std::vector<torch::Tensor> in;
    std::vector<torch::Tensor> p;
    for (const std::size_t value : layer.inputs) in.push_back(as_field(values[value], layer));
    for (const ParameterSpec& spec : layer.parameters) p.push_back(parameters.at(spec.name));
    values.push_back(one_layer(layer, p, in));
    if (layer.output.voxels() == 1) values.back() = values.back().flatten(1);
  }
  std::vector<torch::Tensor> outputs;
  for (const ModelGraph::Output& output : graph.outputs) outputs.push_back(values[output.value].flatten());
  return torch::cat(outputs);
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
  c.model.norm = norm ? Norm::batch : Norm::none;
  c.model.dropout = 0;
  c.model.tanh_output = tanh;
  c.model.dense = {16, 8};
  return c;
}

Case periodic(Case c) {
  c.model.padding = Padding::periodic;
  return c;
}

Case with_activation(Case c, LayerKind activation, Norm norm) {
  c.model.activation = activation;
  c.model.norm = norm;
  return c;
}

std::vector<std::vector<float>> input_values(const ModelGraph& graph, std::int64_t samples) {
  std::vector<std::vector<float>> values;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    values.push_back(noise(static_cast<std::size_t>(samples * graph.inputs[i].shape.count()), 2 + 17 * i));
  for (const Layer& layer : graph.layers) {
    if (layer.kind != LayerKind::embedding) continue;
    const auto classes = static_cast<float>(layer.parameters[0].shape[0]);
    for (float& value : values[layer.inputs.front()]) value = std::floor((value + 1) / 2 * classes);
  }
  return values;
}

std::vector<torch::Tensor> input_tensors(const ModelGraph& graph, std::vector<std::vector<float>>& values,
                                         std::int64_t samples) {
  std::vector<torch::Tensor> tensors;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TensorShape& shape = graph.inputs[i].shape;
    const auto& e = shape.extent;
    std::vector<std::int64_t> sizes = {samples, shape.channels};
    if (shape.voxels() > 1) sizes.insert(sizes.end(), e.begin(), e.end());
    tensors.push_back(torch::from_blob(values[i].data(), sizes));
  }
  return tensors;
}

void move_away_from_initial(FlatState& state) {
  // Biases and norms differ from 0 and 1, which would hide mistakes.
  for (const FlatEntry& entry : state.parameters().entries) {
    if (entry.spec.decays) continue;
    const auto shift = noise(static_cast<std::size_t>(entry.count), 9);
    for (std::size_t i = 0; i < shift.size(); ++i) state.value(entry)[i] += 0.3F * shift[i];
  }
}

// Checks forward, gradients and prediction of one graph with one kind of kernels.
void compare_with_autograd(const ModelGraph& graph, std::int64_t samples, KernelChoice kernels,
                           bool batch_norm) {
  FlatState state(graph);
  state.fill_initial_values(1);
  move_away_from_initial(state);
  const auto network = make_torch_network(graph, state, kernels, false);
  std::vector<std::vector<float>> values = input_values(graph, samples);
  const std::vector<std::span<const float>> inputs(values.begin(), values.end());
  const auto slope = noise(static_cast<std::size_t>(samples * graph.output_count()), 3);
  std::vector<float> outputs(slope.size());

  std::map<std::string, torch::Tensor> parameters;
  for (const FlatEntry& entry : state.parameters().entries) {
    parameters[entry.spec.name] =
        torch::from_blob(state.value(entry).data(), entry.spec.shape).clone().set_requires_grad(true);
  }
  const torch::Tensor expected = by_autograd(graph, parameters, input_tensors(graph, values, samples));
  expected.backward(torch::from_blob(const_cast<float*>(slope.data()), {expected.numel()}));

  // Twice: the second time, every buffer has values of the first pass.
  for (int round = 0; round < 2; ++round) {
    std::fill(state.gradients().begin(), state.gradients().end(), round == 0 ? NAN : 0.0F);
    network->forward(inputs, samples, {}, outputs);
    std::vector<std::int64_t> ready;
    network->backward(slope, [&](std::int64_t from) { ready.push_back(from); });
    EXPECT_TRUE(std::is_sorted(ready.rbegin(), ready.rend()));
    EXPECT_EQ(ready.back(), state.gradients_begin());
    EXPECT_LT(relative_difference(outputs, expected), 1e-5);
    for (const FlatEntry& entry : state.parameters().entries) {
      EXPECT_LT(relative_difference(state.gradient(entry), parameters.at(entry.spec.name).grad()), 2e-4)
          << entry.spec.name << " kernels " << static_cast<int>(kernels);
    }
  }
  // With the batch's own statistics as the running ones, prediction is nearly the forward pass.
  state.update_running_statistics(samples, 1.0, state.buffers().entries);
  network->values_changed();
  std::vector<float> predicted(outputs.size());
  network->predict(inputs, samples, predicted);
  // Running variances are unbiased, a batch's are not: they differ by 1/n in each norm, with n cells in all
  // samples.
  EXPECT_LT(relative_difference(predicted, expected), batch_norm ? 8e-2 : 1e-5);
}

constexpr std::array<KernelChoice, 4> kAllKernels = {KernelChoice::library, KernelChoice::fastest,
                                                     KernelChoice::direct, KernelChoice::onednn};

class NetworkTest : public testing::TestWithParam<Case> {};

#ifdef WFLOW_PARALLEL_LOOPS
// ATen's parallel_for is a loop on one thread where a source is compiled without OpenMP.
TEST(Threads, AreAsManyAsWereSet) {
  for (const int threads : {2, 1}) {
    set_compute_threads(threads, true);
    EXPECT_EQ(compute_threads(), threads);
  }
}
#endif

TEST_P(NetworkTest, GradientsAreAutograds) {
  const Case& c = GetParam();
  const ModelGraph graph = build_model(c.model, c.input, 3);
  for (const KernelChoice kernels : kAllKernels)
    compare_with_autograd(graph, c.samples, kernels, c.model.norm == Norm::batch);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, NetworkTest,
    testing::Values(
        make_case("cosmoflow", ModelName::cosmoflow, 4, true, {2, {32, 32, 32}}, 3),
        make_case("cosmoflow_one_sample", ModelName::cosmoflow, 4, true, {2, {16, 16, 16}}, 1),
        make_case("cosmoflow_without_norm", ModelName::cosmoflow, 4, false, {3, {16, 16, 16}}, 2),
        make_case("cosmoflow_wide", ModelName::cosmoflow, 16, true, {1, {16, 16, 16}}, 2),
        make_case("cosmoflow_odd", ModelName::cosmoflow, 3, true, {1, {18, 13, 21}}, 3),
        make_case("cosmoflow_picture", ModelName::cosmoflow, 4, true, {1, {1, 32, 32}}, 4),
        make_case("mlperf", ModelName::mlperf, 4, false, {4, {16, 16, 16}}, 2, true),
        make_case("mlperf_norm", ModelName::mlperf, 5, true, {1, {17, 17, 17}}, 2),
        make_case("sc18", ModelName::sc18, 2, false, {1, {32, 32, 32}}, 2),
        make_case("mlperf_wide", ModelName::mlperf, 32, false, {4, {16, 16, 16}}, 1),
        make_case("mlperf_wide_norm", ModelName::mlperf, 20, true, {3, {17, 8, 19}}, 4),
        make_case("sc18_wide", ModelName::sc18, 16, false, {1, {16, 16, 16}}, 1),
        make_case("cosmoflow_wide_odd", ModelName::cosmoflow, 17, false, {1, {9, 16, 11}}, 2),
        with_activation(make_case("cosmoflow_relu_group", ModelName::cosmoflow, 16, true, {5, {16, 16, 16}},
                                  2),
                        LayerKind::relu, Norm::group),
        with_activation(make_case("cnn_picture_wide", ModelName::cnn, 16, true, {3, {1, 19, 24}}, 4),
                        LayerKind::relu, Norm::batch),
        with_activation(make_case("cnn_picture_group", ModelName::cnn, 24, true, {1, {1, 32, 24}}, 1),
                        LayerKind::leaky_relu, Norm::group),
        with_activation(make_case("cnn_cube_silu", ModelName::cnn, 16, true, {2, {8, 8, 8}}, 2),
                        LayerKind::silu, Norm::none),
        make_case("cnn_series_wide", ModelName::cnn, 16, false, {2, {1, 1, 40}}, 3),
        periodic(make_case("cosmoflow_periodic", ModelName::cosmoflow, 4, false, {2, {16, 16, 16}}, 2)),
        periodic(make_case("mlperf_periodic", ModelName::mlperf, 16, true, {1, {9, 16, 10}}, 2)),
        periodic(make_case("sc18_periodic", ModelName::sc18, 16, false, {1, {16, 16, 16}}, 1)),
        periodic(make_case("cnn_periodic_picture", ModelName::cnn, 16, true, {3, {1, 19, 24}}, 2))),
    [](const auto& test) { return test.param.name; });

struct FamilyCase {
  const char* name;
  ModelName model;
  ModelTask task;
  Norm norm = Norm::none;
  bool pre_activation = false;
  Padding padding = Padding::same;
};

std::ostream& operator<<(std::ostream& out, const FamilyCase& c) {
  return out << c.name;
}

ModelGraph family_graph(const FamilyCase& c) {
  ModelConfig model = default_model(c.model);
  model.width = 3;
  model.depth = 2;
  model.latent = 4;
  model.dropout = 0;
  model.norm = c.norm;
  model.pre_activation = c.pre_activation;
  model.padding = c.padding;
  model.blocks = std::min<std::int64_t>(model.blocks, 2);
  model.growth = std::min<std::int64_t>(model.growth, 3);
  for (std::int64_t& size : model.dense) size = 9;
  return build_model(model, c.task);
}

class FamilyTest : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyTest, GradientsAreAutograds) {
  const FamilyCase& c = GetParam();
  for (const KernelChoice kernels : kAllKernels)
    compare_with_autograd(family_graph(c), 3, kernels, c.norm == Norm::batch);
}

const NamedShape kCube = {"x", {2, {8, 8, 8}}};
const NamedShape kPicture = {"x", {2, {1, 16, 12}}};
const NamedShape kOdd = {"x", {2, {1, 21, 18}}};
const NamedShape kSeries = {"x", {3, {1, 1, 40}}};
const NamedShape kNumbers = {"a", {1, {1, 1, 1}}};

INSTANTIATE_TEST_SUITE_P(
    Families, FamilyTest,
    testing::Values(
        FamilyCase{"mlp", ModelName::mlp, {{kNumbers, {"b", {}}}, {3, {1, 1, 1}}}},
        FamilyCase{"mlp_of_a_field", ModelName::mlp, {{kCube, kNumbers}, {3, {1, 1, 1}}}},
        FamilyCase{"cnn_series", ModelName::cnn, {{kSeries}, {2, {1, 1, 1}}}},
        FamilyCase{"cnn_picture", ModelName::cnn, {{kPicture}, {2, {1, 1, 1}}}, Norm::group},
        FamilyCase{"cnn_cube", ModelName::cnn, {{kCube}, {2, {1, 1, 1}}}, Norm::batch},
        FamilyCase{"unet_picture", ModelName::unet, {{kPicture}, {3, {1, 16, 12}}}, Norm::batch},
        FamilyCase{"unet_cube", ModelName::unet, {{kCube}, {1, {8, 8, 8}}}, Norm::group},
        FamilyCase{"unet_series", ModelName::unet, {{kSeries}, {1, {1, 1, 40}}}},
        FamilyCase{"resnet_cube", ModelName::resnet, {{kCube}, {2, {1, 1, 1}}}, Norm::group},
        FamilyCase{"resnet_picture", ModelName::resnet, {{kPicture}, {2, {1, 1, 1}}}, Norm::batch},
        FamilyCase{"resnet_series", ModelName::resnet, {{kSeries}, {2, {1, 1, 1}}}},
        FamilyCase{
            "resnet_pre_activation", ModelName::resnet, {{kPicture}, {2, {1, 1, 1}}}, Norm::batch, true},
        FamilyCase{"deeplab_cube", ModelName::deeplab, {{kCube}, {2, {8, 8, 8}}}, Norm::group},
        FamilyCase{"deeplab_picture", ModelName::deeplab, {{kOdd}, {3, kOdd.shape.extent}}, Norm::batch},
        FamilyCase{"tiramisu_cube", ModelName::tiramisu, {{kCube}, {2, {8, 8, 8}}}, Norm::group},
        FamilyCase{"tiramisu_picture", ModelName::tiramisu, {{kOdd}, {3, kOdd.shape.extent}}, Norm::batch},
        FamilyCase{"decoder_cube", ModelName::decoder, {{kNumbers, {"b", {}}}, {2, {8, 8, 8}}}},
        FamilyCase{"decoder_picture", ModelName::decoder, {{kNumbers}, {1, {1, 16, 12}}}},
        FamilyCase{"autoencoder", ModelName::autoencoder, {{kCube}, {2, {8, 8, 8}}}},
        FamilyCase{"unet_periodic",
                   ModelName::unet,
                   {{kCube}, {1, {8, 8, 8}}},
                   Norm::group,
                   false,
                   Padding::periodic},
        FamilyCase{"resnet_periodic",
                   ModelName::resnet,
                   {{kPicture}, {2, {1, 1, 1}}},
                   Norm::batch,
                   false,
                   Padding::periodic},
        FamilyCase{"autoencoder_periodic",
                   ModelName::autoencoder,
                   {{kCube}, {2, {8, 8, 8}}},
                   Norm::none,
                   false,
                   Padding::periodic}),
    [](const auto& test) { return test.param.name; });

ModelGraph graph_of(const std::string& layers, const ModelTask& task) {
  yaml::Diagnostics diagnostics("model");
  std::vector<std::string> inputs;
  for (const NamedShape& input : task.inputs) inputs.push_back(input.name);
  ModelConfig model = default_model(ModelName::layers);
  model.layers = read_layers(yaml::parse(layers, diagnostics), inputs, diagnostics);
  EXPECT_EQ(diagnostics.to_string(), "");
  return build_model(model, task);
}

// Every kind of layer, in branches that join again.
const char* const kManyLayers = R"(
- {convolution: 4, kernel: 3, name: first}
- silu
- {convolution: 4, kernel: 4, stride: 2, name: strided}
- {group_norm: 2}
- elu
- {transposed_convolution: 4, name: up}
- {concatenate: [up, first]}
- layer_norm
- gelu
- {convolution: 8, kernel: 2, padding: valid, bias: false, name: valid}
- batch_norm
- {relu: batch_norm1, name: left}
- {sigmoid: valid, name: right}
- {softplus: valid, name: middle}
- {add: [left, right, middle]}
- {average_pool: 2, name: pooled}
- {upsample: 3}
- {max_pool: 3}
- {tanh_scale: 1.5}
- {global_mean: tanh_scale1, name: mean}
- {global_max: pooled, name: most}
- {leaky_relu: 0.2, from: mean, name: bent}
- {tanh: mean, name: bounded}
- {dense: 6, from: a, name: numbers}
- {softmax: numbers, name: shares}
- {concatenate: [bent, bounded, most, shares, numbers]}
- layer_norm
- {group_norm: 2}
- {reshape: [9, 2, 2]}
- flatten
- {dense: 3}
)";

TEST(LayerList, GradientsAreAutogradsForEveryKind) {
  const ModelTask task = {{{"x", {2, {8, 8, 8}}}, {"a", {1, {1, 1, 1}}}}, {3, {1, 1, 1}}};
  const ModelGraph graph = graph_of(kManyLayers, task);
  for (const KernelChoice kernels : kAllKernels) compare_with_autograd(graph, 3, kernels, true);
}

const char* const kMoreLayers = R"(
- {embedding: 3, classes: 5, from: kind, name: of_kind}
- {embedding: 2, classes: 4, from: map, name: of_cell}
- {concatenate: [x, of_cell]}
- {convolution: 6, groups: 6}
- {convolution: 8, groups: 2, dilation: 2, name: grouped}
- instance_norm
- relu
- {convolution: 8, kernel: 2, dilation: 3, padding: valid, bias: false}
- {resize: [5, 7, 9]}
- {resize: 0.5}
- {pixel_shuffle: 2}
- {slice: [1, 4], axis: height}
- {flatten: slice1, name: rows}
- {slice: [2, 6], from: grouped}
- {gather: [3, 0, 0]}
- {global_mean: gather1, name: picked}
- {slice: [1, 3], from: of_kind, name: part}
- {gather: [1, 0, 1], from: of_kind, name: again}
- {concatenate: [picked, rows, part, again]}
- {dense: 3}
)";

TEST(LayerList, GradientsAreAutogradsForMoreKinds) {
  const TensorShape field = {4, {6, 8, 8}};
  const ModelTask task = {{{"x", field}, {"kind", {1, {1, 1, 1}}}, {"map", {1, field.extent}}},
                          {3, {1, 1, 1}}};
  const ModelGraph graph = graph_of(kMoreLayers, task);
  for (const KernelChoice kernels : kAllKernels) compare_with_autograd(graph, 3, kernels, false);
}

const char* const kRepeated = R"(
- {convolution: 4, from: x, bias: false, part: trunk, name: seen}
- instance_norm
- leaky_relu
- {transposed_convolution: 3, kernel: 5, stride: 2, padding: same, name: up}
- {global_mean: up, name: first}
- {apply: trunk, from: y, name: second}
- {dense: 6, from: a, part: rest, name: settings}
- {film: [up, settings], name: modulated}
- {spread: [settings, modulated], name: wide}
- {concatenate: [modulated, wide]}
- {transposed_convolution: 2, kernel: 4, stride: 2, padding: same, name: last}
- {global_mean: last, name: top}
- {stop: first, name: stopped}
- {subtract: [second, stopped], name: difference}
- {apply: trunk, from: x, name: third}
- {stop: third, name: unreached}
- {concatenate: [first, second, difference, top, unreached]}
- {dense: 3}
)";

// Weights that layers share have the sum of the gradients; nothing goes back through `stop`.
TEST(LayerList, GradientsOfSharedWeightsAreAutograds) {
  const TensorShape field = {2, {4, 6, 6}};
  const ModelTask task = {{{"x", field}, {"y", field}, {"a", {1, {1, 1, 1}}}}, {3, {1, 1, 1}}};
  const ModelGraph graph = graph_of(kRepeated, task);
  EXPECT_EQ(graph.parameters().size(), 11U);
  for (const KernelChoice kernels : kAllKernels) compare_with_autograd(graph, 3, kernels, false);
}

const char* const kWindows = R"(
- {convolution: 32, dilation: 2, bias: false, name: dilated_first}
- batch_norm
- relu
- {convolution: 32, groups: 2, name: grouped}
- relu
- {convolution: 32, groups: 32, name: depthwise}
- relu
- {convolution: 24, groups: 8, stride: 2, name: narrow_groups}
- {convolution: 24, groups: 24, dilation: 2, name: wide_depthwise}
- {convolution: 32, dilation: 3, bias: false, name: dilated}
- instance_norm
- leaky_relu
- global_mean
- {dense: 2}
)";

// Wide enough for oneDNN's kernels.
TEST(LayerList, GradientsAreAutogradsForDilationAndGroups) {
  for (const TensorShape& field : {TensorShape{3, {1, 24, 20}}, TensorShape{3, {8, 10, 8}}}) {
    const ModelGraph graph = graph_of(kWindows, {{{"x", field}}, {2, {1, 1, 1}}});
    for (const KernelChoice kernels : kAllKernels) compare_with_autograd(graph, 2, kernels, true);
  }
}

// Borders of every width: one side only, as wide as the field, in both layouts.
const char* const kPeriodic = R"(
- {convolution: 6, padding: periodic, part: trunk, name: few}
- {leaky_relu: 0.1}
- {average_pool: 2, part: rest}
- {convolution: 16, kernel: 4, padding: periodic, name: even}
- {relu: , name: a}
- {convolution: 32, kernel: 2, padding: periodic, bias: false, name: one_side}
- batch_norm
- relu
- {convolution: 32, stride: 2, padding: periodic, name: strided}
- {convolution: 32, dilation: 2, padding: periodic, name: dilated}
- relu
- {convolution: 32, groups: 32, padding: periodic, name: depthwise}
- {convolution: 16, kernel: 1, padding: periodic, name: point}
- {global_mean: point, name: mean}
- {global_max: a, name: most}
- {apply: trunk, from: x, name: again}
- {global_max: again, name: more}
- {concatenate: [mean, most, more]}
- {dense: 2}
)";

TEST(LayerList, GradientsAreAutogradsForPeriodicBorders) {
  for (const TensorShape& field :
       {TensorShape{3, {1, 13, 20}}, TensorShape{2, {9, 10, 8}}, TensorShape{2, {1, 1, 31}}}) {
    const ModelGraph graph = graph_of(kPeriodic, {{{"x", field}}, {2, {1, 1, 1}}});
    for (const KernelChoice kernels : kAllKernels) compare_with_autograd(graph, 2, kernels, true);
  }
}

// Values that several layers read, and layers of every kind between wide convolutions.
const char* const kShortcuts = R"(
- {convolution: 16, name: first}
- {relu: , name: a}
- {max_pool: 2, name: low}
- {convolution: 32, bias: false, from: low, name: second}
- {batch_norm: , name: normal}
- {relu: , name: b}
- {average_pool: 2, from: b, name: lower}
- {convolution: 32, from: lower, name: third}
- relu
- {transposed_convolution: 32, name: up}
- {concatenate: [b, up], name: joined}
- {batch_norm: , from: joined, name: joined_norm}
- leaky_relu
- {convolution: 32, name: fourth}
- {add: [fourth, b, up], name: sum}
- relu
- {transposed_convolution: 16, kernel: 4, stride: 2, padding: same, name: up_again}
- {relu: , name: c}
- {average_pool: 2, from: c, name: pooled}
- {concatenate: [a, c], name: all}
- {gelu: , from: all}
- {convolution: 24, name: last}
- {transposed_convolution: 20, kernel: 3, stride: 2, bias: false, padding: same, name: wide}
- group_norm
- relu
- {average_pool: 2}
- {global_mean: , name: mean}
- {global_mean: pooled, name: other_mean}
- {concatenate: [mean, other_mean]}
- {dense: 2}
)";

TEST(LayerList, GradientsAreAutogradsForShortcuts) {
  for (const TensorShape& field : {TensorShape{3, {1, 16, 20}}, TensorShape{2, {8, 4, 8}}}) {
    const ModelGraph graph = graph_of(kShortcuts, {{{"x", field}}, {2, {1, 1, 1}}});
    for (const KernelChoice kernels : kAllKernels) compare_with_autograd(graph, 2, kernels, true);
  }
}

TEST(LayerList, RefusesClassNumbersOutOfRange) {
  const ModelGraph graph =
      graph_of("[{embedding: 2, classes: 3}, {dense: 1}]", {{{"kind", {}}}, {1, {1, 1, 1}}});
  FlatState state(graph);
  const auto network = make_torch_network(graph, state, KernelChoice::fastest, false);
  std::vector<float> y(2);
  for (const float wrong : {3.0F, -1.0F, 0.5F, NAN}) {
    const std::vector<float> classes = {2, wrong};
    try {
      network->predict(classes, 2, y);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_EQ(
          std::string(error.what()).find("the embedding 'embedding1' reads class numbers from 0 to 2, and"),
          0U)
          << error.what();
    }
  }
}

struct ListCase {
  const char* name;
  const char* layers;
  ModelTask task;
};

std::ostream& operator<<(std::ostream& out, const ListCase& c) {
  return out << c.name;
}

class SequenceTest : public testing::TestWithParam<ListCase> {};

TEST_P(SequenceTest, GradientsAreAutograds) {
  const ListCase& c = GetParam();
  const ModelGraph graph = graph_of(c.layers, c.task);
  for (const KernelChoice kernels : {KernelChoice::library, KernelChoice::fastest})
    compare_with_autograd(graph, 3, kernels, false);
}

const ModelTask kSteps = {{{"x", {3, {1, 1, 9}}}, {"x_mask", {1, {1, 1, 9}}}}, {3, {1, 1, 1}}};

INSTANTIATE_TEST_SUITE_P(
    Layers, SequenceTest,
    testing::Values(
        ListCase{"recurrent", R"(
- {lstm: 5, from: [x, x_mask], output: sequence, bidirectional: true, name: a}
- {gru: 4, from: [a, x_mask], output: sequence, bidirectional: true, name: b}
- {gru: 3, from: [b, x_mask], bidirectional: true, name: c}
- {lstm: 3, from: [b, x_mask], name: d}
- {lstm: 2, from: b, bidirectional: true, name: e}
- {gru: 2, from: b, output: sequence, name: f}
- {flatten: f, name: g}
- {concatenate: [c, d, e, g]}
- {dense: 3}
)",
                 kSteps},
        ListCase{"attention", R"(
- {convolution: 6, kernel: 1}
- {positions: , name: p}
- {attention: 2, from: [p, x_mask], name: a}
- {add: [p, a]}
- layer_norm
- {positions: , learned: true}
- attention
- coordinates
- flatten
- {dense: 3}
)",
                 kSteps},
        ListCase{"attention_over_cells",
                 "[positions, {attention: 3}, coordinates, flatten, {dense: 3}]",
                 {{{"x", {3, {2, 4, 3}}}}, {3, {1, 1, 1}}}},
        ListCase{"spectral_series",
                 "[{spectral_convolution: 4, modes: 3}, gelu, {spectral_convolution: 2, modes: 4}]",
                 {{{"x", {3, {1, 1, 9}}}}, {2, {1, 1, 9}}}},
        ListCase{"spectral_picture",
                 "[{spectral_convolution: 4, modes: 3}, gelu, {spectral_convolution: 2, modes: 2}]",
                 {{{"x", {3, {1, 7, 8}}}}, {2, {1, 7, 8}}}},
        ListCase{"spectral_cube",
                 "[{spectral_convolution: 3, modes: 2}, {spectral_convolution: 2, modes: 1}]",
                 {{{"x", {2, {5, 4, 6}}}}, {2, {5, 4, 6}}}},
        ListCase{"conv_lstm_pictures",
                 "[{conv_lstm: 3, output: sequence}, {conv_lstm: 2, kernel: 1}, flatten, {dense: 3}]",
                 {{{"x", {2, {4, 5, 3}}}}, {3, {1, 1, 1}}}},
        ListCase{"conv_lstm_lines",
                 "[{conv_lstm: 3}, {conv_lstm: 2, output: sequence, from: x, name: b}, flatten, "
                 "{flatten: conv_lstm1, name: c}, {concatenate: [flatten1, c]}, {dense: 3}]",
                 {{{"x", {2, {1, 4, 5}}}}, {3, {1, 1, 1}}}}),
    [](const auto& test) { return test.param.name; });

const NamedShape kMasked = {"x_mask", {1, {1, 1, 40}}};

INSTANTIATE_TEST_SUITE_P(
    SequenceFamilies, FamilyTest,
    testing::Values(FamilyCase{"fno_picture", ModelName::fno, {{kPicture}, {3, {1, 16, 12}}}},
                    FamilyCase{"fno_numbers", ModelName::fno, {{kSeries}, {2, {1, 1, 1}}}, Norm::group},
                    FamilyCase{"lstm_numbers", ModelName::lstm, {{kSeries, kMasked}, {2, {1, 1, 1}}}},
                    FamilyCase{"lstm_series", ModelName::lstm, {{kSeries}, {2, {1, 1, 40}}}},
                    FamilyCase{"conv_lstm_numbers", ModelName::conv_lstm, {{kCube}, {2, {1, 1, 1}}}},
                    FamilyCase{"conv_lstm_frames", ModelName::conv_lstm, {{kCube}, {1, {8, 8, 8}}}},
                    FamilyCase{"conv_lstm_next", ModelName::conv_lstm, {{kCube}, {1, {1, 8, 8}}}}),
    [](const auto& test) { return test.param.name; });

// Padding changes neither outputs nor gradients, whatever is in it.
TEST(SequenceLayers, IgnorePadding) {
  const ModelGraph graph = graph_of(
      "[{lstm: 4, from: [x, x_mask], output: sequence, bidirectional: true, name: a}, {attention: 2, from: "
      "[a, "
      "x_mask], name: b}, {gru: 4, from: [b, x_mask], bidirectional: true}, {dense: 3}]",
      kSteps);
  FlatState state(graph);
  state.fill_initial_values(1);
  for (const KernelChoice kernels : {KernelChoice::library, KernelChoice::fastest}) {
    const auto network = make_torch_network(graph, state, kernels, false);
    const std::vector<float> mask = {1, 1, 1, 1, 1, 0, 0, 0, 0};
    std::vector<std::vector<float>> found;
    for (const float padding : {0.0F, 1000.0F}) {
      std::vector<float> x = noise(27, 3);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (mask[i % 9] == 0) x[i] = padding;
      const std::vector<std::span<const float>> inputs = {x, mask};
      std::vector<float> values(3);
      network->forward(inputs, 1, {}, values);
      network->backward(std::vector<float>{1, -1, 2}, [](std::int64_t) {});
      values.insert(values.end(), state.gradients().begin(), state.gradients().end());
      found.push_back(values);
    }
    EXPECT_EQ(found[0], found[1]);
  }
}

// Steps of one graph: outputs and gradients, as bits.
std::vector<float> two_steps(const ModelGraph& graph, std::int64_t samples, KernelChoice kernels) {
  FlatState state(graph);
  state.fill_initial_values(1);
  const auto network = make_torch_network(graph, state, kernels, false);
  const auto x = noise(static_cast<std::size_t>(samples * graph.input().count()), 4);
  const auto slope = noise(static_cast<std::size_t>(samples * graph.output_count()), 5);
  std::vector<float> all;
  std::vector<float> outputs(slope.size());
  for (std::uint64_t step = 0; step < 2; ++step) {
    network->forward(x, samples, {1, step, 0}, outputs);
    network->backward(slope, [](std::int64_t) {});
    all.insert(all.end(), outputs.begin(), outputs.end());
    all.insert(all.end(), state.gradients().begin(), state.gradients().end());
    for (float& value : state.values()) value *= 0.99F;
    network->values_changed();
  }
  return all;
}

// Frozen layers behind one that learns pass their gradients on and find none of their own weights.
TEST(Frozen, LayersPassTheSameGradientsOn) {
  const char* const narrow =
      "[{convolution: 4}, relu, {convolution: 6}, relu, flatten, {dense: 8}, relu, {dense: 2}]";
  for (const char* const list : {kShortcuts, narrow}) {
    const ModelGraph graph = graph_of(list, {{{"x", TensorShape{2, {8, 4, 8}}}}, {2, {1, 1, 1}}});
    ModelGraph frozen = graph;
    for (std::size_t i = 1; i < frozen.layers.size(); ++i) frozen.layers[i].frozen = true;
    FlatState state(graph);
    const std::vector<FlatEntry>& entries = state.parameters().entries;
    const std::size_t outputs = 2 * static_cast<std::size_t>(graph.output_count());
    for (const KernelChoice kernels : kAllKernels) {
      const std::vector<float> all = two_steps(graph, 2, kernels);
      const std::vector<float> some = two_steps(frozen, 2, kernels);
      ASSERT_EQ(some.size(), all.size());
      for (std::size_t at = 0; at < all.size(); at += outputs + state.gradients().size()) {
        for (std::size_t i = 0; i < outputs; ++i) ASSERT_EQ(some[at + i], all[at + i]);
        for (const FlatEntry& entry : entries) {
          const bool learns = entry.spec.name.starts_with(graph.layers[0].name + ".");
          const std::size_t first = at + outputs + static_cast<std::size_t>(entry.offset);
          for (std::size_t i = first; i < first + static_cast<std::size_t>(entry.count); ++i)
            ASSERT_EQ(some[i], learns ? all[i] : 0.0F)
                << list << entry.spec.name << static_cast<int>(kernels);
        }
      }
    }
  }
}

TEST(Onednn, GivesTheSameBitsAgainWithTheSameThreads) {
  ModelConfig model = make_case("", ModelName::mlperf, 16, true, {}, 0).model;
  const ModelGraph graph = build_model(model, {4, {16, 16, 16}}, 2);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    EXPECT_EQ(two_steps(graph, 3, KernelChoice::onednn), two_steps(graph, 3, KernelChoice::onednn));
  }
  at::set_num_threads(threads);
}

// Ranks that share samples send the edges of an output while the cells between them are computed.
TEST(Onednn, EdgesOfAnOutputComeFirst) {
  for (const char* const list :
       {"[{convolution: 16}, {leaky_relu: 0.1}, {max_pool: 2}, global_mean, {dense: 2}]",
        "[{convolution: 32}, {group_norm: 4}, relu, global_mean, {dense: 2}]"}) {
    const ModelGraph graph = graph_of(list, {{{"x", TensorShape{16, {8, 12, 10}}}}, {2, {1, 1, 1}}});
    FlatState state(graph);
    state.fill_initial_values(7);
    StateTensors tensors(state, at::kCPU);
    StageArrays arrays;
    const std::span<const Layer> layers = std::span(graph.layers).first(3);
    const auto block = make_onednn_block(layers, tensors.tensors_of(layers, arrays), true, Precision::full,
                                         std::make_shared<BlockScratch>(), false);
    if (block == nullptr) GTEST_SKIP() << "oneDNN has no kernels on this processor";
    const TensorShape& shape = layers.back().output;
    const std::int64_t samples = 2;
    const at::Tensor x = at::randn({samples * layers.front().input.count()});
    const auto fields = [&](const at::Tensor& z) {
      return z.view({-1, shape.extent[0], shape.extent[1], shape.extent[2] * block->output_block()});
    };
    const at::Tensor expected = fields(block->forward(x.clone(), {1, 1, 0})).clone();
    for (const OutputEdges& edges : {OutputEdges{{1, 2}, {0, 0}}, OutputEdges{{0, 1}, {1, 2}},
                                     OutputEdges{{0, 0}, {3, 0}}, OutputEdges{{9, 0}, {0, 0}}}) {
      int calls = 0;
      block->compute_first(edges, [&](const at::Tensor& z) {
        ++calls;
        const at::Tensor ready = fields(z);
        const auto same = [&](std::int64_t axis, std::int64_t begin, std::int64_t end) {
          begin = std::max<std::int64_t>(0, begin);
          end = std::min(end, ready.size(axis));
          return at::equal(ready.slice(axis, begin, end), expected.slice(axis, begin, end));
        };
        EXPECT_TRUE(same(1, 0, edges.planes[0]));
        EXPECT_TRUE(same(1, ready.size(1) - edges.planes[1], ready.size(1)));
        EXPECT_TRUE(same(2, 0, edges.rows[0]));
        EXPECT_TRUE(same(2, ready.size(2) - edges.rows[1], ready.size(2)));
      });
      EXPECT_TRUE(at::equal(fields(block->forward(x.clone(), {1, 1, 0})), expected));
      EXPECT_EQ(calls, 1);
      EXPECT_TRUE(at::equal(fields(block->predict(x.clone())), expected));
      EXPECT_EQ(calls, 2);
    }
  }
}

// Convolutions that are computed again, before norms and pools of all kinds and in the kernels of both kinds.
TEST(Recompute, ChangesNoBit) {
  for (const FamilyCase& c :
       {FamilyCase{"cnn", ModelName::cnn, {{kCube}, {2, {1, 1, 1}}}, Norm::batch},
        FamilyCase{"unet", ModelName::unet, {{kCube}, {2, {8, 8, 8}}}, Norm::group},
        FamilyCase{"unet_batch", ModelName::unet, {{kCube}, {2, {8, 8, 8}}}, Norm::batch},
        FamilyCase{"resnet", ModelName::resnet, {{kCube}, {2, {1, 1, 1}}}, Norm::batch}}) {
    for (const int width : {4, 16}) {
      ModelConfig model = default_model(c.model);
      model.width = width;
      model.depth = 2;
      model.norm = c.norm;
      model.blocks = std::min<std::int64_t>(model.blocks, 2);
      ModelGraph graph = build_model(model, c.task);
      for (const KernelChoice kernels : {KernelChoice::fastest, KernelChoice::direct, KernelChoice::onednn}) {
        graph.recomputes = false;
        const std::vector<float> kept = two_steps(graph, 2, kernels);
        graph.recomputes = true;
        EXPECT_EQ(kept, two_steps(graph, 2, kernels)) << c.name << width << static_cast<int>(kernels);
      }
    }
  }
}

bool has_blocked_kernels() {
  const std::string set = onednn_instruction_set();
  return set == "AVX2" || set.starts_with("AVX512");
}

// The reference kernels are a thousand times slower, and oneDNN chooses them silently.
TEST(Onednn, NeverRunsAReferenceKernel) {
  for (const Case& c : {make_case("mlperf", ModelName::mlperf, 32, false, {4, {64, 64, 64}}, 1),
                        make_case("mlperf_small", ModelName::mlperf, 32, false, {4, {32, 32, 32}}, 1),
                        make_case("mlperf_deep", ModelName::mlperf, 256, false, {4, {8, 8, 8}}, 1),
                        make_case("cosmoflow", ModelName::cosmoflow, 16, false, {1, {64, 64, 64}}, 1),
                        make_case("sc18", ModelName::sc18, 16, false, {1, {128, 128, 128}}, 1),
                        make_case("cnn", ModelName::cnn, 16, false, {3, {1, 128, 128}}, 1)}) {
    const ModelGraph graph = build_model(c.model, c.input, 3);
    FlatState state(graph);
    const auto network = make_torch_network(graph, state, KernelChoice::onednn, false);
    int blocks = 0;
    for (const std::string& line : network->describe()) {
      EXPECT_EQ(line.find("ref"), std::string::npos) << line;
      if (line.find("oneDNN: jit") != std::string::npos || line.find("oneDNN: brg") != std::string::npos)
        ++blocks;
    }
    EXPECT_GE(blocks, has_blocked_kernels() ? 1 : 0) << c.name;
  }
}

// The blocks of a trunk pass fields without reordering them: only this test shows that they ran.
TEST(Onednn, RunsEveryConvolutionOfTheMlperfTrunk) {
  if (!has_blocked_kernels()) GTEST_SKIP() << "oneDNN is limited to " << onednn_instruction_set();
  const Case c = make_case("mlperf", ModelName::mlperf, 32, false, {4, {64, 64, 64}}, 1);
  const ModelGraph graph = build_model(c.model, c.input, 3);
  FlatState state(graph);
  const auto network = make_torch_network(graph, state, KernelChoice::onednn, false);
  for (const std::string& line : network->describe()) {
    if (!line.starts_with("conv")) continue;
    EXPECT_NE(line.find("oneDNN: jit"), std::string::npos) << line;
  }
}

// Dilated convolutions, and groups of as many channels as a block or, without dilation, of one channel.
TEST(Onednn, RunsDilatedAndGroupedConvolutions) {
  if (!has_blocked_kernels()) GTEST_SKIP() << "oneDNN is limited to " << onednn_instruction_set();
  const ModelGraph graph = graph_of(kWindows, {{{"x", {3, {1, 24, 20}}}}, {2, {1, 1, 1}}});
  FlatState state(graph);
  const auto network = make_torch_network(graph, state, KernelChoice::fastest, false);
  for (const std::string& line : network->describe()) {
    if (line.starts_with("narrow_groups") || line.starts_with("wide_depthwise")) {
      EXPECT_NE(line.find("libtorch"), std::string::npos) << line;
    } else if (line.starts_with("dilated") || line.starts_with("grouped") || line.starts_with("depthwise")) {
      EXPECT_NE(line.find("oneDNN: jit"), std::string::npos) << line;
    }
  }
}

// Fields stay in blocks over pools, sums and joins, as far as all channels fill blocks.
TEST(Onednn, KeepsFieldsInBlocksOverShortcuts) {
  if (!has_blocked_kernels()) GTEST_SKIP() << "oneDNN is limited to " << onednn_instruction_set();
  const ModelGraph graph = graph_of(kShortcuts, {{{"x", {3, {1, 16, 20}}}}, {2, {1, 1, 1}}});
  FlatState state(graph);
  const auto network = make_torch_network(graph, state, KernelChoice::onednn, false);
  for (const std::string& line : network->describe()) {
    for (const char* const name : {"first", "second", "third", "up", "fourth", "up_again", "last", "wide"}) {
      if (!line.starts_with(name) || !line.substr(std::string(name).size()).starts_with(" ")) continue;
      EXPECT_NE(line.find("oneDNN: jit"), std::string::npos) << line;
    }
    for (const char* const name : {"low ", "lower", "joined", "sum", "pooled", "all"}) {
      if (!line.starts_with(name)) continue;
      EXPECT_NE(line.find("  blocks"), std::string::npos) << line;
    }
  }
}

const char* const kNarrow = R"(
- {convolution: 16, kernel: 4, stride: 2, name: down}
- leaky_relu
- {transposed_convolution: 4, kernel: 5, stride: 2, padding: same, name: few}
- relu
- {convolution: 20, kernel: 3, stride: 2, name: from_few}
- relu
- {transposed_convolution: 12, kernel: 4, stride: 2, padding: same, bias: false, name: from_some}
- group_norm
- {convolution: 8, kernel: 2, padding: valid, dilation: 2, name: last}
- {transposed_convolution: 1, kernel: 3, stride: 2, padding: same, name: one}
- {average_pool: 2}
- flatten
- {dense: 2}
)";

// oneDNN refuses input channels that fill no block. Channels without weights fill it.
TEST(Onednn, FillsTheBlocksOfNarrowLayers) {
  for (const TensorShape& field : {TensorShape{3, {1, 12, 20}}, TensorShape{2, {8, 4, 8}}}) {
    const ModelGraph graph = graph_of(kNarrow, {{{"x", field}}, {2, {1, 1, 1}}});
    for (const KernelChoice kernels : kAllKernels) compare_with_autograd(graph, 3, kernels, true);
    // On volumes, oneDNN has no strided gradients for AVX2.
    if (!has_blocked_kernels() || (onednn_instruction_set() == "AVX2" && field.extent[0] > 1)) continue;
    FlatState state(graph);
    const auto network = make_torch_network(graph, state, KernelChoice::onednn, false);
    for (const std::string& line : network->describe())
      for (const char* const name : {"few ", "from_few ", "from_some ", "last ", "one "})
        EXPECT_TRUE(!line.starts_with(name) || line.find("oneDNN: jit") != std::string::npos) << line;
  }
}

// Outputs and gradients of one step.
std::vector<float> one_step(const ModelGraph& graph, KernelChoice kernels, Precision precision) {
  FlatState state(graph);
  state.fill_initial_values(1);
  const auto network = make_torch_network(graph, state, kernels, false, precision);
  const std::int64_t samples = 2;
  const auto x = noise(static_cast<std::size_t>(samples * graph.input().count()), 4);
  const auto slope = noise(static_cast<std::size_t>(samples * graph.output_count()), 5);
  std::vector<float> all(slope.size());
  network->forward(x, samples, {1, 0, 0}, all);
  network->backward(slope, [](std::int64_t) {});
  all.insert(all.end(), state.gradients().begin(), state.gradients().end());
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(apart / size);
}

// A factor has 8 bits (bf16) or 11 (fp16): results differ in the last few bits and are not equal.
TEST(Precision, RoundsTheFactorsAndNothingElse) {
  ModelConfig model = make_case("", ModelName::mlperf, 16, false, {}, 0).model;
  const ModelGraph graph = build_model(model, {4, {16, 16, 16}}, 2);
  const std::vector<float> full = one_step(graph, KernelChoice::library, Precision::full);
  const double fp16 = distance(one_step(graph, KernelChoice::library, Precision::fp16), full);
  const double bf16 = distance(one_step(graph, KernelChoice::library, Precision::bf16), full);
  EXPECT_GT(fp16, 1e-5);
  EXPECT_LT(fp16, 5e-3);
  EXPECT_GT(bf16, 2 * fp16);
  EXPECT_LT(bf16, 4e-2);
  if (!onednn_has_bf16()) GTEST_SKIP() << "oneDNN has " << onednn_instruction_set();
  const std::vector<float> blocked = one_step(graph, KernelChoice::onednn, Precision::bf16);
  EXPECT_LT(distance(blocked, full), 4e-2);
  EXPECT_GT(distance(blocked, full), 2 * fp16);
  EXPECT_EQ(blocked, one_step(graph, KernelChoice::onednn, Precision::bf16)) << "the same bits again";
}

TEST(Precision, EveryWideConvolutionOfOnednnMultipliesBf16) {
  if (!onednn_has_bf16()) GTEST_SKIP() << "oneDNN has " << onednn_instruction_set();
  const Case c = make_case("mlperf", ModelName::mlperf, 32, false, {4, {64, 64, 64}}, 1);
  const ModelGraph graph = build_model(c.model, c.input, 3);
  FlatState state(graph);
  const auto network = make_torch_network(graph, state, KernelChoice::onednn, false, Precision::bf16);
  int rounded = 0;
  for (const std::string& line : network->describe()) {
    if (line.starts_with("conv1 ")) continue;  // four channels in: full precision
    if (line.starts_with("conv")) {
      EXPECT_NE(line.find("bf16"), std::string::npos) << line;
    }
    rounded += line.find("bf16") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(rounded, 3);
}

TEST(Precision, Bf16IsRefusedWithoutInstructionsForIt) {
  const ModelGraph graph = build_model(default_model(ModelName::mlp), {4, {1, 1, 1}}, 2);
  FlatState state(graph);
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(make_network(Backend::torch, Precision::bf16, graph, state), Error);
  if (onednn_has_bf16()) return;
  EXPECT_THROW(make_network(Backend::automatic, Precision::bf16, graph, state), Error);
}

TEST(Onednn, IsRefusedWhereItHasNothingToDo) {
  const ModelGraph graph = build_model(default_model(ModelName::mlp), {4, {1, 1, 1}}, 2);
  FlatState state(graph);
  try {
    make_network(Backend::onednn, Precision::full, graph, state);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::spec);
    EXPECT_NE(std::string(error.what()).find("backend: auto"), std::string::npos) << error.what();
  }
  EXPECT_NE(make_network(Backend::automatic, Precision::full, graph, state), nullptr);
}

// Gradients of a variational network through the whole chain against differences of losses: the noise is a
// function of (seed, step, sample), so the loss is a function of only the weights.
TEST(Vae, GradientsAreDifferencesOfTheLoss) {
  const FamilyCase c = {"vae", ModelName::vae, {{kCube}, {2, {8, 8, 8}}}};
  const ModelGraph graph = family_graph(c);
  TargetShape shape;
  shape.labels = {"x0", "x1"};
  shape.cells = 512;
  shape.latent = 4;
  LossConfig loss;
  loss.kl_weight = 0.5;
  const Objective objective(loss, shape);
  FlatState state(graph);
  state.fill_initial_values(4);
  const auto network = make_torch_network(graph, state, KernelChoice::library, false);
  const auto x = noise(2 * 1024, 5);
  std::vector<float> outputs(2 * objective.all_output_count());
  std::vector<float> gradient(outputs.size());
  const auto loss_now = [&] {
    network->forward(x, 2, {1, 7, 0}, outputs);
    return objective.loss_and_gradient(outputs, x, 2, 1, gradient);
  };
  loss_now();
  network->backward(gradient, [](std::int64_t) {});
  for (const char* name :
       {"conv1.weight", "latent_mean.weight", "latent_log_variance.weight", "seed.bias", "out.bias"}) {
    const FlatEntry& entry = *state.parameters().find(name);
    // The weight with the largest gradient: differences of losses have few digits.
    const std::span<const float> slopes = state.gradient(entry);
    const auto at = static_cast<std::size_t>(
        std::max_element(slopes.begin(), slopes.end(),
                         [](float a, float b) { return std::abs(a) < std::abs(b); }) -
        slopes.begin());
    const double slope = slopes[at];
    const float before = state.value(entry)[at];
    const float h = 2e-3F;
    state.value(entry)[at] = before + h;
    const double more = loss_now();
    state.value(entry)[at] = before - h;
    const double less = loss_now();
    state.value(entry)[at] = before;
    EXPECT_NEAR(slope, (more - less) / (2 * h), 0.02 * std::abs(slope) + 0.05) << name;
  }
  // Predictions use no random numbers.
  std::vector<float> twice(outputs.size());
  network->predict(x, 2, outputs);
  network->predict(x, 2, twice);
  EXPECT_EQ(outputs, twice);
}

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
                        make_case("sc18", ModelName::sc18, 2, false, {1, {32, 32, 32}}, 2),
                        periodic(make_case("periodic", ModelName::sc18, 2, false, {2, {9, 16, 12}}, 2))}) {
    const ModelGraph graph = build_model(c.model, c.input, 2);
    FlatState state(graph);
    state.fill_initial_values(1);
    const auto network = make_torch_network(graph, state, KernelChoice::fastest, false);
    std::vector<float> x = noise(static_cast<std::size_t>(c.samples * graph.input().count()), 2);
    for (float& v : x) v += 1.5F;
    const auto channels = static_cast<std::size_t>(c.input.channels);
    const Normalisation normalisation = {
        std::vector<double>(channels, 0.25), std::vector<double>(channels, 2), {1, 2}, {3, 4}, {}, {}};
    const TransformConfig transform = {TransformName::log, 0.5};
    const std::string path = testing::TempDir() + "wflow-export-" + c.name + ".pt";
    const OutputUnits output = {"", LossName::mse, false, {"a", "b"}, {1, 2}, {3, 4}};
    export_model(graph, state, {transform, normalisation, {output}}, path);
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

// Fields, several inputs, and losses whose outputs are not the targets themselves.
TEST(Export, OtherNetworksAndLosses) {
  struct OtherCase {
    FamilyCase family;
    LossName loss;
  };
  for (const OtherCase& other :
       {OtherCase{{"unet", ModelName::unet, {{kPicture}, {2, {1, 16, 12}}}, Norm::batch}, LossName::mse},
        OtherCase{{"unet_group", ModelName::unet, {{kCube}, {2, {8, 8, 8}}}, Norm::group}, LossName::mse},
        OtherCase{{"resnet", ModelName::resnet, {{kSeries}, {2, {1, 1, 1}}}, Norm::batch, true},
                  LossName::mse},
        OtherCase{{"deeplab", ModelName::deeplab, {{kOdd}, {2, kOdd.shape.extent}}, Norm::batch},
                  LossName::mse},
        OtherCase{{"tiramisu", ModelName::tiramisu, {{kCube}, {2, {8, 8, 8}}}, Norm::batch}, LossName::mse},
        OtherCase{{"decoder", ModelName::decoder, {{kNumbers, {"b", {}}}, {2, {8, 8, 8}}}}, LossName::mse},
        OtherCase{{"vae", ModelName::vae, {{kCube}, {2, {8, 8, 8}}}}, LossName::mse},
        OtherCase{{"gaussian", ModelName::mlp, {{kNumbers, {"b", {}}}, {4, {1, 1, 1}}}}, LossName::gaussian},
        OtherCase{{"classes", ModelName::cnn, {{kSeries}, {4, {1, 1, 1}}}}, LossName::cross_entropy}}) {
    const ModelGraph graph = family_graph(other.family);
    FlatState state(graph);
    state.fill_initial_values(1);
    const auto network = make_torch_network(graph, state, KernelChoice::fastest, false);
    std::vector<std::vector<float>> raw = input_values(graph, 2);
    const std::size_t channels = static_cast<std::size_t>(graph.inputs.front().shape.channels);
    const bool field = other.family.task.output.voxels() > 1;
    const Normalisation normalisation = {std::vector<double>(channels, 0.25),
                                         std::vector<double>(channels, 2),
                                         {1, 2},
                                         {3, 4},
                                         {0.5, -0.5},
                                         {2, 4}};
    const std::string path = testing::TempDir() + "wflow-export-" + other.family.name + ".pt";
    const OutputUnits output = {"", other.loss, field, {"a", "b"}, {1, 2}, {3, 4}};
    export_model(graph, state, {{}, normalisation, {output}}, path);
    torch::jit::Module module = torch::jit::load(path);
    std::filesystem::remove(path);
    std::vector<torch::jit::IValue> given;
    for (const torch::Tensor& tensor : input_tensors(graph, raw, 2)) given.emplace_back(tensor.clone());
    const torch::Tensor y = module.forward(given).toTensor().contiguous();

    std::size_t number = 0;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      const bool is_field = graph.inputs[i].name == "x";
      const double mean = is_field ? 0.25 : normalisation.numbers_mean[number];
      const double deviation = is_field ? 2 : normalisation.numbers_std[number];
      if (!is_field) ++number;
      for (float& v : raw[i]) v = static_cast<float>((v - mean) / deviation);
    }
    const std::vector<std::span<const float>> inputs(raw.begin(), raw.end());
    std::vector<float> outputs(static_cast<std::size_t>(2 * graph.output_count()));
    network->predict(inputs, 2, outputs);
    const auto count = static_cast<std::size_t>(graph.shape_of(graph.outputs.front().value).count());
    ASSERT_EQ(static_cast<std::size_t>(y.numel()), 2 * count) << other.family.name;
    for (std::size_t n = 0; n < 2; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < count; ++k) sum += std::exp(static_cast<double>(outputs[n * count + k]));
      for (std::size_t k = 0; k < count; ++k) {
        const double out = outputs[n * count + k];
        const std::size_t target = field ? k / (count / 2) : k % 2;
        double expected = out * normalisation.y_std[target] + normalisation.y_mean[target];
        if (other.loss == LossName::gaussian && k >= 2)
          expected = std::exp(0.5 * out) * normalisation.y_std[target];
        if (other.loss == LossName::cross_entropy) expected = std::exp(out) / sum;
        EXPECT_NEAR(y.data_ptr<float>()[n * count + k], expected, 1e-4 * std::abs(expected) + 1e-5)
            << other.family.name;
      }
    }
  }
}

}  // namespace
}  // namespace wflow::trainer
