// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_export.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"

namespace wflow::trainer {
namespace {

std::string plain_name(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

at::Tensor tensor_of(const FlatEntry& entry, std::span<const float> all) {
  // libtorch has no tensors of constants; the clone is what stays.
  auto* begin = const_cast<float*>(all.data()) + entry.offset;
  return at::from_blob(begin, entry.spec.shape, at::TensorOptions().dtype(at::kFloat)).clone();
}

at::Tensor tensor_of(const std::vector<double>& values, std::vector<std::int64_t> shape) {
  at::Tensor tensor =
      at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(at::kFloat));
  std::transform(values.begin(), values.end(), tensor.data_ptr<float>(),
                 [](double v) { return static_cast<float>(v); });
  return tensor.view(shape);
}

}  // namespace

void export_model(const ModelGraph& graph, const FlatState& state, const TransformConfig& transform,
                  const Normalisation& normalisation, const std::vector<std::string>& targets,
                  const std::string& path) {
  try {
    torch::jit::Module module("WflowModel");
    for (const FlatEntry& entry : state.parameters().entries) {
      module.register_parameter(plain_name(entry.spec.name), tensor_of(entry, state.values()), false);
    }
    for (const FlatEntry& entry : state.buffers().entries) {
      module.register_buffer(plain_name(entry.spec.name), tensor_of(entry, state.buffer_values()));
    }
    module.register_buffer("x_mean", tensor_of(normalisation.x_mean, {1, -1, 1, 1, 1}));
    module.register_buffer("x_std", tensor_of(normalisation.x_std, {1, -1, 1, 1, 1}));
    module.register_buffer("y_mean", tensor_of(normalisation.y_mean, {1, -1}));
    module.register_buffer("y_std", tensor_of(normalisation.y_std, {1, -1}));
    c10::List<std::string> names;
    for (const std::string& target : targets) names.push_back(target);
    module.register_attribute("targets", c10::ListType::ofStrings(), names);
    module.register_attribute("wflow", c10::StringType::get(), std::string(kVersion));
    module.define(torchscript_source(graph, transform));
    module.eval();
    DurableFile file(path);
    module.save(file.temporary().string());
    file.publish();
  } catch (const c10::Error& error) {
    throw Error(ExitCode::internal,
                "cannot export the network to " + path + ": " + error.what_without_backtrace());
  }
}

}  // namespace wflow::trainer
