// SPDX-License-Identifier: Apache-2.0
// In place of what reads and runs TorchScript, in a build without libtorch: one sentence.
#include "trainer/analysis/gaussian_process.h"
#include "trainer/model/module_score.h"
#include "trainer/model/network.h"

namespace wflow::trainer {

ModelGraph module_graph(std::string /*bytes*/, const std::string& name, const ModelTask& /*task*/) {
  needs_torch("the network in the TorchScript file " + name);
}

void fill_from_module(const ModelGraph& /*graph*/, FlatState& /*state*/) {}

struct ModuleScore::Module {};
ModuleScore::ModuleScore(const std::string& /*bytes*/, const std::string& name) {
  needs_torch("the TorchScript file " + name);
}
ModuleScore::~ModuleScore() = default;
double ModuleScore::score(std::span<const float> /*predictions*/, std::span<const float> /*truths*/,
                          std::span<const std::int64_t> /*shape*/, std::span<float> /*slopes*/) const {
  return 0;
}

struct GaussianProcess::State {};
GaussianProcess::GaussianProcess(std::vector<double> /*points*/, std::span<const double> /*outputs*/) {
  needs_torch("a Gaussian process");
}
GaussianProcess::~GaussianProcess() = default;
GaussianProcess::GaussianProcess(GaussianProcess&&) noexcept = default;
std::vector<double> GaussianProcess::lengths() const {
  return {};
}
double GaussianProcess::noise() const {
  return 0;
}
std::vector<double> GaussianProcess::mean(std::span<const double> /*points*/) const {
  return {};
}
std::vector<std::vector<double>> GaussianProcess::draws(std::span<const double> /*points*/,
                                                        std::size_t /*count*/, std::uint64_t /*seed*/) const {
  return {};
}
std::vector<double> GaussianProcess::left_out(std::size_t /*folds*/, std::uint64_t /*seed*/) const {
  return {};
}
double GaussianProcess::likelihood(std::span<const double> /*logarithms*/,
                                   std::span<double> /*derivatives*/) const {
  return 0;
}
std::vector<double> GaussianProcess::logarithms() const {
  return {};
}

}  // namespace wflow::trainer
