// SPDX-License-Identifier: Apache-2.0
// A TorchScript file of the user that compares predictions with targets: a loss or a metric.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace wflow::trainer {

// `forward(prediction, target)` gets [samples, targets], or for a field [samples, channels, height, width]
// with as many axes as the field has, and returns a number for each sample. It is called for one sample at a
// time, so that a step does not depend on how a batch is spread over the ranks.
class ModuleScore {
 public:
  virtual ~ModuleScore() = default;
  ModuleScore(const ModuleScore&) = delete;
  ModuleScore& operator=(const ModuleScore&) = delete;

  const std::string& hash() const { return hash_; }  // of the file

  // `shape`: of one sample. `slopes`, unless empty, receives the derivative by each prediction. Error{data}
  // if the module fails, does not give one number, or has no gradient.
  virtual double score(std::span<const float> predictions, std::span<const float> truths,
                       std::span<const std::int64_t> shape, std::span<float> slopes) const = 0;

 protected:
  explicit ModuleScore(std::string hash) : hash_(std::move(hash)) {}

 private:
  std::string hash_;
};

// `bytes`: contents of the file; `name`: its name in messages. Error{data} if they are no module.
std::unique_ptr<ModuleScore> open_module_score(const std::string& bytes, const std::string& name);

// By the path in the configuration.
using ModuleScores = std::map<std::string, std::shared_ptr<const ModuleScore>, std::less<>>;

}  // namespace wflow::trainer
