// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/exported_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow::trainer {

namespace {

// One sentence of libtorch's message: the rest is its stack. A module's own message follows the stack.
std::string reason_of(const std::string& text) {
  constexpr std::string_view kOfModule = "RuntimeError: ";
  const std::size_t last = text.rfind(kOfModule);
  const std::size_t begin = last == std::string::npos ? 0 : last + kOfModule.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::string reason_of(const std::exception& error) {
  return reason_of(std::string(error.what()));
}

std::string reason_of(const c10::Error& error) {
  return reason_of(std::string(error.what_without_backtrace()));
}

std::vector<std::string> strings(const c10::IValue& list) {
  std::vector<std::string> strings;
  for (const c10::IValue& item : list.toListRef())
    if (item.isString()) strings.push_back(item.toStringRef());
  return strings;
}

std::vector<std::string> names(const torch::jit::Module& module, const char* attribute) {
  if (!module.hasattr(attribute) || !module.attr(attribute).isList()) return {};
  return strings(module.attr(attribute));
}

std::vector<std::vector<std::string>> columns_of(const torch::jit::Module& module, std::size_t inputs) {
  std::vector<std::vector<std::string>> columns;
  if (module.hasattr("columns") && module.attr("columns").isList()) {
    for (const c10::IValue& list : module.attr("columns").toListRef())
      columns.push_back(list.isList() ? strings(list) : std::vector<std::string>());
  }
  columns.resize(inputs);
  return columns;
}

std::vector<std::int64_t> integers(const torch::jit::Module& module, const char* attribute) {
  if (!module.hasattr(attribute) || !module.attr(attribute).isIntList()) return {};
  return module.attr(attribute).toIntVector();
}

std::string text_attribute(const torch::jit::Module& module, const char* name) {
  return module.hasattr(name) && module.attr(name).isString() ? module.attr(name).toStringRef() : "";
}

torch::jit::Module load(const std::filesystem::path& file) {
  read_at(open_file(file, 0).get(), 0, nullptr, 0, file);  // throws if the file itself can't be read
  const auto fail = [&](const std::string& why) {
    return Error(ExitCode::data,
                 fmt::format("{} is no TorchScript file that libtorch can read: {}", file.string(), why));
  };
  // libtorch compares no checksum: a changed weight would silently give other predictions.
  if (const auto damage = zip_damage(file)) throw fail(*damage + "; train again, or put a copy of it back");
  try {
    torch::jit::Module module = torch::jit::load(file.string(), c10::kCPU);
    module.eval();
    return module;
  } catch (const c10::Error& error) {
    throw fail(reason_of(error));
  } catch (const std::exception& error) {
    throw fail(reason_of(error));
  }
}

ExportedModel::Head only_head(const torch::jit::Module& module) {
  ExportedModel::Head head;
  head.targets = names(module, "targets");
  head.loss = text_attribute(module, "loss");
  head.units = text_attribute(module, "units");
  head.grid = integers(module, "target_grid");
  if (module.hasattr("target_has_channels") && module.attr("target_has_channels").isBool())
    head.has_channels = module.attr("target_has_channels").toBool();
  if (module.hasattr("quantiles") && module.attr("quantiles").isDoubleList())
    head.quantiles = module.attr("quantiles").toDoubleVector();
  return head;
}

std::vector<ExportedModel::Head> heads_of(const torch::jit::Module& module) {
  if (!module.hasattr("heads")) return {only_head(module)};
  std::vector<ExportedModel::Head> heads;
  const std::vector<std::string> heads_names = names(module, "heads");
  const std::vector<std::string> losses = names(module, "head_losses");
  const std::vector<std::string> units = names(module, "head_units");
  const auto targets = module.attr("head_targets").toListRef();
  const auto grids = module.attr("head_grids").toListRef();
  const auto channels = module.attr("head_has_channels").toBoolList();
  const auto quantiles = module.attr("head_quantiles").toListRef();
  for (std::size_t h = 0; h < heads_names.size(); ++h)
    heads.push_back({heads_names[h], strings(targets[h]), losses.at(h), units.at(h), grids[h].toIntVector(),
                     channels.get(h), quantiles[h].toDoubleVector()});
  return heads;
}

std::vector<MetricConfig> metrics_of(const torch::jit::Module& module) {
  const std::vector<std::string> of_metrics = names(module, "metric_names");
  const std::vector<std::string> formulas = names(module, "metric_formulas");
  std::vector<MetricConfig> metrics;
  for (std::size_t k = 0; k < std::min(of_metrics.size(), formulas.size()); ++k)
    metrics.push_back({of_metrics[k], formulas[k]});
  return metrics;
}

ModelArray array_of(at::Tensor output) {
  ModelArray result{output.sizes().vec(), {}, output.scalar_type() == at::kDouble};
  output = output.to(at::kDouble).contiguous();
  result.values.assign(output.data_ptr<double>(), output.data_ptr<double>() + output.numel());
  return result;
}

class TorchScriptModel final : public ExportedModel {
 public:
  explicit TorchScriptModel(const std::filesystem::path& file) : TorchScriptModel(file, load(file)) {}
  std::vector<ModelArray> run(std::span<const ModelArray> inputs) override;
  std::vector<ModelArray> gradients(std::span<const ModelArray> inputs, std::size_t head, std::size_t first,
                                    std::size_t count) override;
  ModelArray run_layer(std::span<const ModelArray> inputs, const std::string& layer) override;

 private:
  TorchScriptModel(std::filesystem::path file, const torch::jit::Module& module)
      : ExportedModel(about(module)),
        file_(std::move(file)),
        module_(module),
        own_(module.hasattr("wflow")) {}
  static About about(const torch::jit::Module& module);

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::data, fmt::format("{} does not suit the data: {}", file_.string(), why));
  }
  std::vector<at::Tensor> tensors(std::span<const ModelArray> inputs) const;
  c10::IValue call(const char* method, const std::vector<at::Tensor>& inputs);
  // One tensor for each head, with a row for each of `rows` samples.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs, std::int64_t rows);

  std::filesystem::path file_;
  torch::jit::Module module_;
  bool own_ = false;  // written by wflow-train
};

ExportedModel::About TorchScriptModel::about(const torch::jit::Module& module) {
  About about;
  about.inputs = names(module, "inputs");
  about.columns = columns_of(module, about.inputs.size());
  about.targets = names(module, "targets");
  about.random_inputs = names(module, "random_inputs");
  about.heads = heads_of(module);
  about.metrics = metrics_of(module);
  const auto lists = [&](const char* name) {
    const bool there = module.hasattr(name) && module.attr(name).isList();
    return there ? module.attr(name).toListRef().vec() : std::vector<c10::IValue>();
  };
  for (const c10::IValue& shape : lists("shapes"))
    about.shapes.push_back(shape.isIntList() ? shape.toIntVector() : std::vector<std::int64_t>());
  for (const c10::IValue& range : lists("ranges"))
    about.ranges.push_back(range.isDoubleList() ? range.toDoubleVector() : std::vector<double>());
  return about;
}

std::vector<at::Tensor> TorchScriptModel::tensors(std::span<const ModelArray> inputs) const {
  std::vector<at::Tensor> tensors;
  for (const ModelArray& input : inputs) {
    // libtorch has no tensors of constants; forward() does not write to its arguments.
    auto* values = const_cast<double*>(input.values.data());
    const at::Tensor tensor = at::from_blob(values, input.shape, at::TensorOptions().dtype(at::kDouble));
    tensors.push_back(own_ ? tensor : tensor.to(at::kFloat));
  }
  return tensors;
}

c10::IValue TorchScriptModel::call(const char* method, const std::vector<at::Tensor>& inputs) {
  try {
    return module_.get_method(method)(std::vector<c10::IValue>(inputs.begin(), inputs.end()));
  } catch (const c10::Error& error) {
    fail(reason_of(error));
  } catch (const std::exception& error) {
    fail(reason_of(error));
  }
}

std::vector<at::Tensor> TorchScriptModel::forward(const std::vector<at::Tensor>& inputs, std::int64_t rows) {
  const c10::IValue value = call("forward", inputs);
  std::vector<at::Tensor> outputs;
  if (value.isTensor()) {
    outputs.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& part : value.toTupleRef().elements())
      if (part.isTensor()) outputs.push_back(part.toTensor());
  }
  if (outputs.size() != heads().size())
    fail(heads().size() == 1 ? "it does not give one tensor"
                             : fmt::format("it does not give the tensors of its {} heads", heads().size()));
  for (const at::Tensor& output : outputs)
    if (output.dim() < 1 || output.size(0) != rows)
      fail(fmt::format("it does not give a row for each of {} samples", rows));
  return outputs;
}

std::vector<ModelArray> TorchScriptModel::run(std::span<const ModelArray> inputs) {
  const c10::InferenceMode without_gradients;
  std::vector<ModelArray> results;
  const std::int64_t rows = inputs.empty() ? 0 : inputs.front().shape.front();
  for (const at::Tensor& output : forward(tensors(inputs), rows)) results.push_back(array_of(output));
  return results;
}

std::vector<ModelArray> TorchScriptModel::gradients(std::span<const ModelArray> inputs, std::size_t head,
                                                    std::size_t first, std::size_t count) {
  std::vector<at::Tensor> values = tensors(inputs);
  for (at::Tensor& value : values) value.requires_grad_(true);
  const std::int64_t rows = inputs.front().shape.front();
  const at::Tensor output = forward(values, rows).at(head).reshape({rows, -1});
  const auto part =
      output.slice(1, static_cast<std::int64_t>(first), static_cast<std::int64_t>(first + count));
  try {
    // Rows do not depend on each other, so one sum has the derivatives of all.
    part.mean(1).sum().backward();
  } catch (const c10::Error& error) {
    fail(fmt::format("it has no derivative: {}", reason_of(error)));
  }
  std::vector<ModelArray> gradients;
  for (const at::Tensor& value : values)
    gradients.push_back(array_of(value.grad().defined() ? value.grad() : at::zeros_like(value)));
  return gradients;
}

ModelArray TorchScriptModel::run_layer(std::span<const ModelArray> inputs, const std::string& layer) {
  if (!module_.find_method("layers"))
    throw Error(ExitCode::data,
                fmt::format("{} has no layers that can be asked for: it is of another program, of an earlier "
                            "version of wflow, or an ensemble",
                            file_.string()));
  const c10::InferenceMode without_gradients;
  const c10::IValue value = call("layers", tensors(inputs));
  std::vector<std::string> known;
  for (const auto& entry : value.toGenericDict()) {
    if (entry.key().toStringRef() == layer) return array_of(entry.value().toTensor());
    known.push_back(entry.key().toStringRef());
  }
  for (const Head& head : heads())
    if (!head.name.empty()) known.push_back(head.name);
  throw Error(ExitCode::data, fmt::format("{} has no output or layer '{}'{}; it has {}", file_.string(),
                                          layer, text::suggestion(layer, known), text::join(known, ", ")));
}

}  // namespace

std::unique_ptr<ExportedModel> open_exported_model(const std::filesystem::path& file) {
  return std::make_unique<TorchScriptModel>(file);
}

}  // namespace wflow::trainer
