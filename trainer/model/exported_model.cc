// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/exported_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/import.h>

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
};

namespace {

// The first sentence of what libtorch says: the rest is its stack.
std::string reason_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

std::string reason_of(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
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

std::string text_attribute(const torch::jit::Module& module, const char* name) {
  return module.hasattr(name) && module.attr(name).isString() ? module.attr(name).toStringRef() : "";
}

torch::jit::Module load(const std::filesystem::path& file) {
  read_at(open_file(file, 0).get(), 0, nullptr, 0, file);  // says what is wrong with the file itself
  const auto fail = [&](const std::string& why) {
    return Error(ExitCode::data,
                 fmt::format("{} is no TorchScript file that libtorch can read: {}", file.string(), why));
  };
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
    : state_(new State{file, load(file), {}, {}, {}, {}, {}}) {
  state_->inputs = names(state_->module, "inputs");
  state_->columns = columns_of(state_->module, state_->inputs.size());
  state_->targets = names(state_->module, "targets");
  state_->loss = text_attribute(state_->module, "loss");
  state_->units = text_attribute(state_->module, "units");
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
    auto* values = const_cast<float*>(input.values.data());
    arguments.emplace_back(at::from_blob(values, input.shape, at::TensorOptions().dtype(at::kFloat)));
  }
  at::Tensor output;
  try {
    const c10::IValue value = state_->module.forward(std::move(arguments));
    if (!value.isTensor()) throw fail("it does not give one tensor");
    output = value.toTensor().to(at::kFloat).contiguous();
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
  ModelArray result{output.sizes().vec(), {}};
  result.values.assign(output.data_ptr<float>(), output.data_ptr<float>() + output.numel());
  return result;
}

}  // namespace wflow::trainer
