// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "trainer/model/exported_model.h"
#include "trainer/model/network.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

using Tensors = TorchLayer::Tensors;

[[noreturn]] void refuse_module(const std::string& name, const std::string& why) {
  throw Error(ExitCode::data, fmt::format("{}: {}", name, why));
}

// One line of libtorch's message: for an error inside the module the last one, which names it.
std::string line_of(std::string text) {
  const std::size_t error = text.rfind("RuntimeError: ");
  if (error != std::string::npos) text.erase(0, error + 14);
  return text.substr(0, text.find('\n'));
}

template <class Call>
auto with_reasons(const std::string& name, const std::string& what, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const c10::Error& error) {
    refuse_module(name, fmt::format("{}: {}", what, line_of(error.what_without_backtrace())));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse_module(name, fmt::format("{}: {}", what, line_of(error.what())));
  }
}

torch::jit::Module load_module(const std::string& bytes, const std::string& name) {
  return with_reasons(name, "is no TorchScript file that libtorch can read", [&] {
    std::istringstream stream(bytes);
    return torch::jit::load(stream, c10::kCPU);
  });
}

std::vector<torch::jit::NameTensor> trained(const torch::jit::Module& module) {
  std::vector<torch::jit::NameTensor> list;
  for (const auto& parameter : module.named_parameters())
    if (parameter.value.requires_grad()) list.push_back(parameter);
  return list;
}

std::vector<torch::jit::NameTensor> buffers_of(const torch::jit::Module& module) {
  std::vector<torch::jit::NameTensor> list;
  for (const auto& buffer : module.named_buffers()) list.push_back(buffer);
  return list;
}

// [samples, channels, ...] without leading flat axes.
at::Tensor without_flat_axes(const at::Tensor& x) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  while (sizes.size() > 3 && sizes[2] == 1) sizes.erase(sizes.begin() + 2);
  return x.reshape(sizes);
}

at::Tensor run_module(torch::jit::Module& module, const std::string& name, const Tensors& inputs) {
  // The executor would compile after some calls, for these sizes: a training that continues after a restart
  // would have other bits.
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  const c10::IValue value = with_reasons(name, "fails on the data", [&] {
    std::vector<c10::IValue> arguments;
    for (const at::Tensor& x : inputs) arguments.emplace_back(without_flat_axes(x));
    return module.forward(std::move(arguments));
  });
  if (!value.isTensor()) refuse_module(name, "does not give one tensor");
  return value.toTensor();
}

std::vector<std::int64_t> sizes_of_field(const TensorShape& shape) {
  if (shape.voxels() == 1) return {shape.channels};
  const auto& e = shape.extent;
  return {shape.channels, e[0], e[1], e[2]};
}

std::vector<std::int64_t> without_ones(std::vector<std::int64_t> sizes) {
  std::erase(sizes, 1);
  return sizes;
}

void check_output(torch::jit::Module module, const std::string& name, const ModelTask& task) {
  const at::NoGradGuard no_gradients;
  constexpr std::int64_t kSamples = 2;
  Tensors inputs;
  for (const NamedShape& input : task.inputs) {
    std::vector<std::int64_t> sizes = sizes_of_field(input.shape);
    sizes.insert(sizes.begin(), kSamples);
    inputs.push_back(at::zeros(sizes));
  }
  module.eval();
  const at::Tensor y = run_module(module, name, inputs);
  if (y.scalar_type() != at::kFloat || y.dim() < 1 || y.size(0) != kSamples)
    refuse_module(name, "does not give float32 with a row a sample");
  const std::vector<std::int64_t> row(y.sizes().begin() + 1, y.sizes().end());
  if (without_ones(row) == without_ones(sizes_of_field(task.output))) return;
  std::string given;
  for (const std::int64_t n : row) given += fmt::format("{}{}", given.empty() ? "" : " x ", n);
  refuse_module(name, fmt::format("gives {} a sample, and targets and loss want {}",
                                  given.empty() ? "1" : given, text_of(task.output)));
}

ParameterSpec spec_of(const torch::jit::NameTensor& value) {
  ParameterSpec spec;
  spec.name = value.name;
  spec.shape = value.value.sizes().vec();
  spec.decays = value.value.dim() > 1;
  return spec;
}

class ModuleLayer final : public TorchLayer {
 public:
  ModuleLayer(const Layer& layer, const LayerTensors& tensors)
      : name_(layer.name), tensors_(tensors), module_(load_module(*layer.module, layer.name)) {
    if (!tensors.parameters.empty()) module_.to(tensors.parameters.front().value.device());
    const std::vector<torch::jit::NameTensor> parameters = trained(module_);
    WFLOW_CHECK(parameters.size() == tensors.parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      leaves_.push_back(parameters[i].value);
      leaves_.back().set_data(tensors.parameters[i].value);
    }
    for (const auto& buffer : buffers_of(module_)) buffers_.push_back(buffer.value);
    for (const char c : name_) key_ = hash64(key_, static_cast<unsigned char>(c));
  }

  at::Tensor predict(const Tensors& inputs) override {
    put_buffers();
    module_.eval();
    return run_module(module_, name_, inputs);
  }

  at::Tensor forward(const Tensors& inputs, const StepKey& key) override {
    put_buffers();
    module_.train();
    at::manual_seed(hash64(hash64(key.seed ^ key_, key.step), static_cast<std::uint64_t>(key.first_sample)));
    {
      const at::AutoGradMode gradients(true);
      output_ = run_module(module_, name_, inputs);
    }
    const auto samples = static_cast<double>(inputs.front().size(0));
    for (std::size_t i = 0; i < buffers_.size(); ++i)
      tensors_.statistics[i].copy_(buffers_[i].to(at::kFloat).sub(tensors_.running[i]).mul_(samples));
    return output_.detach();
  }

  Tensors backward(const at::Tensor& gradient, const std::vector<bool>& wanted) override {
    const Tensors found = with_reasons(name_, "has no gradient", [&] {
      return torch::autograd::grad({output_}, leaves_, {gradient.reshape(output_.sizes())}, c10::nullopt,
                                   false, true);
    });
    output_.reset();
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      const at::Tensor& to = tensors_.parameters[i].gradient;
      found[i].defined() ? to.copy_(found[i]) : to.zero_();
    }
    return Tensors(wanted.size());
  }

 private:
  void put_buffers() {
    const at::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const at::Tensor& from = tensors_.running[i];
      buffers_[i].copy_(buffers_[i].is_floating_point() ? from : from.round());
    }
  }

  std::string name_;
  LayerTensors tensors_;
  torch::jit::Module module_;
  std::vector<at::Tensor> leaves_;
  std::vector<at::Tensor> buffers_;
  std::uint64_t key_ = 0;
  at::Tensor output_;
};

class TorchScriptScore final : public ModuleScore {
 public:
  TorchScriptScore(const std::string& bytes, std::string name)
      : ModuleScore(hash_bytes(bytes)), name_(std::move(name)), module_(load_module(bytes, name_)) {
    module_.eval();
  }

  double score(std::span<const float> predictions, std::span<const float> truths,
               std::span<const std::int64_t> shape, std::span<float> slopes) const override {
    std::vector<std::int64_t> sizes(shape.begin(), shape.end());
    sizes.insert(sizes.begin(), 1);
    const auto tensor = [&](std::span<const float> values) {
      const at::Tensor x = at::empty(sizes, at::kFloat);
      std::ranges::copy(values, x.data_ptr<float>());
      return x;
    };
    const at::AutoGradMode gradients(!slopes.empty());
    const at::Tensor prediction = tensor(predictions).set_requires_grad(!slopes.empty());
    const at::Tensor value = run_module(module_, name_, {prediction, tensor(truths)});
    if (value.numel() != 1 || !value.is_floating_point())
      refuse_module(name_, "must give one number for each sample, [N], from predictions and targets");
    if (!slopes.empty()) {
      const Tensors found = with_reasons(name_, "has no gradient", [&] {
        return torch::autograd::grad({value.sum()}, {prediction}, {}, c10::nullopt, false, true);
      });
      if (!found.front().defined()) refuse_module(name_, "does not depend on the predictions");
      const at::Tensor slope = found.front().to(at::kFloat).contiguous();
      std::copy_n(slope.data_ptr<float>(), slopes.size(), slopes.begin());
    }
    return value.item<double>();
  }

 private:
  std::string name_;
  mutable torch::jit::Module module_;  // its call changes nothing
};

}  // namespace

std::unique_ptr<ModuleScore> open_module_score(const std::string& bytes, const std::string& name) {
  return std::make_unique<TorchScriptScore>(bytes, name);
}

ModelGraph module_graph(std::string bytes, const std::string& name, const ModelTask& task) {
  Layer layer;
  layer.kind = LayerKind::module;
  layer.name = name;
  layer.module = std::make_shared<const std::string>(std::move(bytes));
  layer.output = task.output;
  torch::jit::Module module = load_module(*layer.module, name);
  std::set<const void*> places;
  for (const auto& parameter : trained(module)) {
    if (parameter.value.scalar_type() != at::kFloat)
      refuse_module(name, fmt::format("its parameter {} is {}: export the module in float32", parameter.name,
                                      c10::toString(parameter.value.scalar_type())));
    if (!places.insert(parameter.value.data_ptr()).second && parameter.value.numel() > 0)
      refuse_module(name, fmt::format("its parameter {} is another one as well; shared parameters can't be "
                                      "trained here",
                                      parameter.name));
    layer.parameters.push_back(spec_of(parameter));
  }
  if (layer.parameters.empty())
    refuse_module(name, "has no parameters to train; export it before torch.jit.freeze, with requires_grad");
  for (const auto& buffer : buffers_of(module)) {
    if (buffer.value.is_complex()) refuse_module(name, fmt::format("its buffer {} is complex", buffer.name));
    layer.buffers.push_back(spec_of(buffer));
  }
  check_output(module, name, task);
  ModelGraph graph;
  graph.inputs = task.inputs;
  layer.input = task.inputs.front().shape;
  for (std::size_t i = 0; i < task.inputs.size(); ++i) layer.inputs.push_back(i);
  graph.layers.push_back(std::move(layer));
  graph.outputs.push_back({"output", task.inputs.size()});
  return graph;
}

void fill_from_module(const ModelGraph& graph, FlatState& state) {
  const Layer& layer = graph.layers.front();
  const torch::jit::Module module = load_module(*layer.module, layer.name);
  const auto put = [](const at::Tensor& from, std::span<float> to) {
    const at::Tensor values = from.detach().to(at::kFloat).contiguous();
    std::copy_n(values.data_ptr<float>(), to.size(), to.begin());
  };
  for (const auto& parameter : trained(module))
    put(parameter.value, state.value(*state.parameters().find(parameter.name)));
  for (const auto& buffer : buffers_of(module))
    put(buffer.value, state.buffer(*state.buffers().find(buffer.name)));
}

std::unique_ptr<TorchLayer> make_module_layer(const Layer& layer, const LayerTensors& tensors) {
  return std::make_unique<ModuleLayer>(layer, tensors);
}

torch::jit::Module module_with_values(const Layer& layer, const FlatState& state) {
  const at::NoGradGuard no_gradients;
  torch::jit::Module module = load_module(*layer.module, layer.name);
  const auto put = [](const at::Tensor& to, const FlatEntry& entry, std::span<const float> all) {
    auto* begin = const_cast<float*>(all.data()) + entry.offset;  // libtorch has no tensors of constants
    const at::Tensor from = at::from_blob(begin, entry.spec.shape, at::TensorOptions().dtype(at::kFloat));
    to.copy_(to.is_floating_point() ? from : from.round());
  };
  for (const auto& parameter : trained(module))
    put(parameter.value, *state.parameters().find(parameter.name), state.values());
  for (const auto& buffer : buffers_of(module))
    put(buffer.value, *state.buffers().find(buffer.name), state.buffer_values());
  return module;
}

}  // namespace wflow::trainer
