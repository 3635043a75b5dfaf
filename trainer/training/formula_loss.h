// SPDX-License-Identifier: Apache-2.0
// The loss and the metrics that a user writes as formulas (trainer/formula.h), over the targets of one
// sample.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config.h"
#include "trainer/formula.h"
#include "trainer/model/exported_model.h"

namespace wflow::trainer {

// A formula at the values of a sample, [targets, cells]: of each value by itself, or of all targets of a
// cell.
class TargetFormula {
 public:
  // CommonError{spec} if the formula names a target that is not among `labels`. `what`: "the loss", for the
  // message.
  TargetFormula(Formula formula, const std::vector<std::string>& labels, std::string_view what);
  // True if every target that the formula names is among `labels`.
  static bool fits(const Formula& formula, std::span<const std::string> labels);

  bool is_joint() const { return joint_; }  // of all targets of a cell
  std::size_t targets() const { return targets_; }
  // The number of places that have a value, among so many values of a sample.
  std::size_t places(std::size_t values) const { return joint_ ? values / targets_ : values; }

  struct Memory {
    Formula::Scratch scratch;
    std::vector<double> values;
    std::vector<double> slopes;  // of the last value, by each name
  };
  // No value where a truth is NaN (padding).
  std::optional<double> value(std::span<const double> predictions, std::span<const double> truths,
                              std::size_t place, Memory& memory) const;
  // Adds factor * the slopes of the last value, at `place`, by the predictions.
  void add_slopes(std::size_t place, const Memory& memory, double factor, std::span<float> gradient) const;

 private:
  struct Name {
    bool is_prediction = false;
    std::size_t target = 0;  // of a joint formula
  };
  std::size_t place_of(const Name& name, std::size_t place, std::size_t values) const {
    return joint_ ? name.target * (values / targets_) + place : place;
  }

  Formula formula_;
  std::vector<Name> names_;  // of the formula
  std::size_t targets_;
  bool joint_ = false;
};

class FormulaLoss {
 public:
  // CommonError{spec} if the formula names a target that is not among `labels`.
  FormulaLoss(const std::string& formula, const std::vector<std::string>& labels);

  // The sum over all targets and cells of a sample, both [targets, cells]; a formula of several targets
  // counts as often as there are targets, so that the mean is that of the formula. Fills `gradient` with
  // scale * its slopes. Where a target is NaN (padding), there is no loss.
  double evaluate(std::span<const float> outputs, std::span<const float> truths, double scale,
                  std::span<float> gradient) const;

 private:
  TargetFormula formula_;
};

// A metric of the user: a formula, or a TorchScript file.
class UserMetric {
 public:
  // `modules`: those of the configuration's files; `shape`: of a sample's targets, as ModuleScore reads it.
  UserMetric(const MetricConfig& metric, const std::vector<std::string>& labels, const ModuleScores& modules,
             std::vector<std::int64_t> shape);

  const std::string& name() const { return name_; }
  // Means: one for each target, or one of all targets together.
  std::size_t means() const { return !formula_ || formula_->is_joint() ? 1 : formula_->targets(); }
  // Appends record_size() numbers of a sample: for each of the means the sum and the count of the values.
  void record(std::span<const double> predictions, std::span<const double> truths,
              std::vector<double>& records) const;
  std::size_t record_size() const { return 2 * means(); }
  // A mean from the sums of its two numbers over the records. Without a value or with one that is not finite,
  // there is none.
  static std::optional<double> mean_of(double sum, double count);

 private:
  void record_formula(std::span<const double> predictions, std::span<const double> truths,
                      std::vector<double>& records) const;
  void record_module(std::span<const double> predictions, std::span<const double> truths,
                     std::vector<double>& records) const;

  std::string name_;
  std::optional<TargetFormula> formula_;
  std::shared_ptr<const ModuleScore> module_;
  std::vector<std::int64_t> shape_;
};

}  // namespace wflow::trainer
