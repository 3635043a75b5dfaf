// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/model_export.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"
#include "trainer/model/module_layer.h"

namespace wflow::trainer {
namespace {

std::string plain_name(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return "p_" + name;  // whatever a layer is called, it hides nothing of the module
}

at::Tensor tensor_of(const FlatEntry& entry, std::span<const float> all) {
  // libtorch has no tensors of constants; the clone is what stays.
  auto* begin = const_cast<float*>(all.data()) + entry.offset;
  return at::from_blob(begin, entry.spec.shape, at::TensorOptions().dtype(at::kFloat)).clone();
}

at::Tensor tensor_of(const std::vector<double>& values, const std::vector<std::int64_t>& shape) {
  at::Tensor tensor =
      at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(at::kFloat));
  std::transform(values.begin(), values.end(), tensor.data_ptr<float>(),
                 [](double v) { return static_cast<float>(v); });
  return tensor.view(shape);
}

void add_network(torch::jit::Module& module, const ModelGraph& graph, const FlatState& state) {
  if (graph.is_module()) {
    module.register_module("network", module_with_values(graph.layers.front(), state));
    return;
  }
  for (const FlatEntry& entry : state.parameters().entries)
    module.register_parameter(plain_name(entry.spec.name), tensor_of(entry, state.values()), false);
  for (const FlatEntry& entry : state.buffers().entries)
    module.register_buffer(plain_name(entry.spec.name), tensor_of(entry, state.buffer_values()));
}

}  // namespace

void export_model(const ModelGraph& graph, const FlatState& state, const ExportedUnits& units,
                  const std::string& path) {
  try {
    torch::jit::Module module("WflowModel");
    add_network(module, graph, state);
    const Normalisation& normalisation = units.normalisation;
    module.register_buffer("x_mean", tensor_of(normalisation.x_mean, {1, -1, 1, 1, 1}));
    module.register_buffer("x_std", tensor_of(normalisation.x_std, {1, -1, 1, 1, 1}));
    const std::vector<std::int64_t> targets =
        units.field_target ? std::vector<std::int64_t>{1, -1, 1, 1, 1} : std::vector<std::int64_t>{1, -1};
    module.register_buffer("y_mean", tensor_of(normalisation.y_mean, targets));
    module.register_buffer("y_std", tensor_of(normalisation.y_std, targets));
    c10::List<std::string> inputs;
    std::size_t number = 0;
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      inputs.push_back(graph.inputs[i].name);
      if (graph.inputs[i].name == kField) continue;
      const std::string name = "in" + std::to_string(i);
      if (const auto scale = normalisation.of_field(graph.inputs[i].name)) {
        module.register_buffer(name + "_mean", tensor_of(scale->mean, {1, -1, 1, 1, 1}));
        module.register_buffer(name + "_std", tensor_of(scale->std, {1, -1, 1, 1, 1}));
        continue;
      }
      module.register_buffer(name + "_mean",
                             tensor_of(std::vector<double>{normalisation.numbers_mean[number]}, {1, 1}));
      module.register_buffer(name + "_std",
                             tensor_of(std::vector<double>{normalisation.numbers_std[number]}, {1, 1}));
      ++number;
    }
    c10::List<std::string> names;
    for (const std::string& target : units.targets) names.push_back(target);
    module.register_attribute("inputs", c10::ListType::ofStrings(), inputs);
    module.register_attribute("targets", c10::ListType::ofStrings(), names);
    c10::List<c10::List<std::string>> columns;
    for (const std::vector<std::string>& of_input : units.columns) {
      c10::List<std::string> list;
      for (const std::string& column : of_input) list.push_back(column);
      columns.push_back(list);
    }
    module.register_attribute("columns", c10::ListType::create(c10::ListType::ofStrings()), columns);
    module.register_attribute("loss", c10::StringType::get(), std::string(name_of(units.loss)));
    const bool transformed = units.field_target && units.target_transformed &&
                             units.loss == LossName::gaussian && units.transform.name != TransformName::none;
    module.register_attribute("units", c10::StringType::get(),
                              std::string(transformed ? "transformed" : "physical"));
    module.register_attribute("wflow", c10::StringType::get(), std::string(kVersion));
    module.define(torchscript_source(graph, units));
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
