// SPDX-License-Identifier: Apache-2.0
// The objective of a network: the loss of its outputs against the targets, its gradient, and the reported
// errors. Plain loops over the outputs, whose cost is small beside the network's.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/transform.h"
#include "trainer/training/formula_loss.h"

namespace wflow::trainer {

// The targets of one sample: `targets` numbers, or as many channels of a field with `cells` cells each.
struct TargetShape {
  std::vector<std::string> labels;  // one per target or channel
  std::int64_t cells = 1;
  std::int64_t classes = 0;      // for a classification: the one target is a class number in each cell
  std::int64_t latent = 0;       // vae: values of the second and third output
  std::int64_t usual_class = 0;  // the most frequent class of the training split, as the guess
};

class Objective {
 public:
  // Error{spec} if a formula names a target that is not there.
  Objective(const LossConfig& config, TargetShape shape);

  // Channels of the network's first output.
  std::int64_t output_channels() const;
  // Values per sample in the targets, in the first output, and in all outputs.
  std::size_t truth_count() const;
  std::size_t output_count() const;
  std::size_t all_output_count() const;
  // Divisor of the sum of one sample's losses. The sum accounts for padding.
  std::size_t terms() const;

  // Sum of the losses of all samples; fills `gradient` with scale * dloss/doutput, laid out as the outputs:
  // the first output of all samples, then the second. truths: [samples, targets, cells], normalised. Those
  // that are NaN (padding) count nowhere: no loss, no gradient, no error. The sum of a padded sample is
  // raised by the ratio of all its values to those that count, so that over terms() it is their mean. The
  // mean is taken in each sample, not over the batch: samples of all sizes weigh the same, and a step does
  // not depend on how the batch is spread over the ranks.
  double loss_and_gradient(std::span<const float> outputs, std::span<const float> truths, std::size_t samples,
                           double scale, std::span<float> gradient) const;

  // Sums of one sample for an evaluation; records are gathered from all ranks in order of the samples.
  struct TargetSums {
    double absolute = 0;  // sums over the cells
    double squared = 0;
    double mean_guess = 0;
    double truth = 0;
    double truth_squared = 0;
    double cells = 0;  // without padding
  };
  static constexpr std::size_t kSumsPerTarget = 6;
  std::size_t record_size() const { return 1 + kSumsPerTarget * shape_.labels.size(); }
  // Converts a normalised value of a target to physical units, where that is more than a factor and an
  // offset.
  using Physical = std::function<double(double value, std::size_t target)>;
  // Appends record_size() numbers per sample: the loss, then TargetSums per target. With `physical`, the sums
  // use physical values, and the guess is the physical value of the normalised mean.
  void record(std::span<const float> outputs, std::span<const float> truths, std::size_t samples,
              std::vector<double>& records, const Physical& physical = {}) const;

  const TargetShape& shape() const { return shape_; }
  LossName name() const { return config_.name; }

 private:
  // Values of all targets of a sample over those that are no padding.
  double padding_factor(std::span<const float> truths) const;
  double first_output(std::span<const float> outputs, std::span<const float> truths, double scale,
                      std::span<float> gradient) const;
  double regression(std::span<const float> outputs, std::span<const float> truths, double scale,
                    std::span<float> gradient) const;
  double gaussian(std::span<const float> outputs, std::span<const float> truths, double scale,
                  std::span<float> gradient) const;
  double cross_entropy(std::span<const float> outputs, std::span<const float> truths, double scale,
                       std::span<float> gradient) const;
  double dice(std::span<const float> outputs, std::span<const float> truths, double scale,
              std::span<float> gradient) const;
  double weight(std::size_t cls) const {
    return config_.class_weights.empty() ? 1.0 : config_.class_weights[cls];
  }
  std::size_t class_of(float truth) const;
  void probabilities(std::span<const float> outputs, std::size_t cell, std::span<double> to) const;

  LossConfig config_;
  TargetShape shape_;
  std::optional<FormulaLoss> formula_;
};

// KL divergence of N(mean, exp(log_variance)) from N(0, 1), with scale * its gradient.
double kl_divergence(std::span<const float> mean, std::span<const float> log_variance, double scale,
                     std::span<float> mean_gradient, std::span<float> log_variance_gradient);

// Errors in physical units. The guess is the training split's mean. For classes the errors are error rates,
// and the guess is the training split's most frequent class.
struct TargetErrors {
  std::string label;
  double mae = 0;  // in the label's own unit
  double mse = 0;
  double mean_guess_mae = 0;  // error of the guess
  double variance = 0;        // variance of the evaluated truths; 0 for classes
  // mae over the guess's; no value if the guess is always right.
  std::optional<double> ratio() const;
  double rmse() const;
  // 1 - mse / variance: the explained share of the variance. No value if the truths do not vary.
  std::optional<double> r2() const;
  bool operator==(const TargetErrors&) const = default;
};

struct Evaluation {
  double loss = 0;
  std::vector<TargetErrors> targets;  // none: no sample was evaluated, and there is no loss
  bool classes = false;
  std::optional<double> mean_ratio() const;
};

// `records` of all samples. `deviations` convert the targets to physical units: 1 if the records are
// physical.
Evaluation evaluate(const Objective& objective, std::span<const double> deviations,
                    std::span<const double> records);

nlohmann::json to_json(const Evaluation& evaluation);

}  // namespace wflow::trainer
