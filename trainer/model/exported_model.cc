// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/exported_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/import.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"

namespace wflow::trainer {

struct ExportedModel::State {
  std::filesystem::path file;
  torch::jit::Module module;
  std::vector<std::string> inputs;
  std::vector<std::vector<std::string>> columns;
  std::vector<std::string> targets;
  std::string loss;
  std::string units;
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<std::vector<double>> ranges;
  std::vector<std::int64_t> target_grid;
  bool target_has_channels = true;
  bool own = false;  // written by wflow-train
  std::vector<double> quantiles = {};
};

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

}  // namespace

ExportedModel::ExportedModel(const std::filesystem::path& file)
    : state_(new State{file, load(file), {}, {}, {}, {}, {}, {}, {}, {}}) {
  state_->inputs = names(state_->module, "inputs");
  state_->columns = columns_of(state_->module, state_->inputs.size());
  state_->targets = names(state_->module, "targets");
  state_->loss = text_attribute(state_->module, "loss");
  if (const char* name = "quantiles";
      state_->module.hasattr(name) && state_->module.attr(name).isDoubleList())
    state_->quantiles = state_->module.attr(name).toDoubleVector();
  state_->units = text_attribute(state_->module, "units");
  state_->target_grid = integers(state_->module, "target_grid");
  if (state_->module.hasattr("target_has_channels") && state_->module.attr("target_has_channels").isBool())
    state_->target_has_channels = state_->module.attr("target_has_channels").toBool();
  state_->own = state_->module.hasattr("wflow");
  const auto lists = [this](const char* name) {
    const bool there = state_->module.hasattr(name) && state_->module.attr(name).isList();
    return there ? state_->module.attr(name).toListRef().vec() : std::vector<c10::IValue>();
  };
  for (const c10::IValue& shape : lists("shapes"))
    state_->shapes.push_back(shape.isIntList() ? shape.toIntVector() : std::vector<std::int64_t>());
  for (const c10::IValue& range : lists("ranges"))
    state_->ranges.push_back(range.isDoubleList() ? range.toDoubleVector() : std::vector<double>());
}

ExportedModel::~ExportedModel() = default;

const std::vector<std::string>& ExportedModel::inputs() const {
  return state_->inputs;
}
const std::vector<std::vector<std::string>>& ExportedModel::columns() const {
  return state_->columns;
}
const std::vector<std::string>& ExportedModel::targets() const {
  return state_->targets;
}
const std::string& ExportedModel::loss() const {
  return state_->loss;
}
const std::vector<double>& ExportedModel::quantiles() const {
  return state_->quantiles;
}

const std::vector<std::vector<std::int64_t>>& ExportedModel::shapes() const {
  return state_->shapes;
}
const std::vector<std::vector<double>>& ExportedModel::ranges() const {
  return state_->ranges;
}

const std::vector<std::int64_t>& ExportedModel::target_grid() const {
  return state_->target_grid;
}
bool ExportedModel::target_has_channels() const {
  return state_->target_has_channels;
}

const std::string& ExportedModel::units() const {
  return state_->units;
}

ModelArray ExportedModel::run(std::span<const ModelArray> inputs) {
  const auto fail = [&](const std::string& why) {
    return Error(ExitCode::data, fmt::format("{} does not suit the data: {}", state_->file.string(), why));
  };
  const c10::InferenceMode without_gradients;
  std::vector<c10::IValue> arguments;
  for (const ModelArray& input : inputs) {
    // libtorch has no tensors of constants; forward() does not write to its arguments.
    auto* values = const_cast<double*>(input.values.data());
    const at::Tensor tensor = at::from_blob(values, input.shape, at::TensorOptions().dtype(at::kDouble));
    arguments.emplace_back(state_->own ? tensor : tensor.to(at::kFloat));
  }
  at::Tensor output;
  try {
    const c10::IValue value = state_->module.forward(std::move(arguments));
    if (!value.isTensor()) throw fail("it does not give one tensor");
    output = value.toTensor();
  } catch (const c10::Error& error) {
    throw fail(reason_of(error));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw fail(reason_of(error));
  }
  const std::int64_t rows = inputs.empty() ? 0 : inputs.front().shape.front();
  if (output.dim() < 1 || output.size(0) != rows)
    throw fail(fmt::format("it does not give a row for each of {} samples", rows));
  ModelArray result{output.sizes().vec(), {}, output.scalar_type() == at::kDouble};
  output = output.to(at::kDouble).contiguous();
  result.values.assign(output.data_ptr<double>(), output.data_ptr<double>() + output.numel());
  return result;
}

}  // namespace wflow::trainer
