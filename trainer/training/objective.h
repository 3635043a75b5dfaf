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
#include <utility>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/transform.h"
#include "trainer/metric_name.h"
#include "trainer/training/detection.h"
#include "trainer/training/formula_loss.h"
#include "trainer/training/metrics.h"
#include "trainer/training/mixture_density.h"

namespace wflow::trainer {

// none: the output is compared with nothing; all truths are NaN. constant: one number.
enum class Truth { data, constant, none };

// The targets of one sample: `targets` numbers, or as many channels of a field with `cells` cells each.
struct TargetShape {
  std::vector<std::string> labels;  // one per target or channel
  std::int64_t cells = 1;
  // For a classification: the one target is a class number in each cell. For a detection: classes of objects.
  std::int64_t classes = 0;
  std::int64_t latent = 0;       // vae: values of the second and third output
  std::int64_t usual_class = 0;  // the most frequent class of the training split, as the guess
  // Cells of each class in the training split, where the class weights follow from them.
  std::vector<std::uint64_t> class_counts = {};
  Truth truth = Truth::data;
  std::vector<std::int64_t> grid = {};  // of a field: the lengths of the axes
};

// Weights by the classes' shares of the counted cells: 1 / share, or its root, scaled so that their mean over
// the cells is 1. A class without cells has the weight 0.
std::vector<double> weights_of_classes(ClassWeighting weighting, std::span<const std::uint64_t> counts);

// The class that a target's value names. Error{data} if it is no whole number below the number of classes.
std::size_t class_number(float value, const TargetShape& shape);

// True if the output of a sample has a deviation of each prediction.
bool predicts_deviations(LossName loss);

class Objective {
 public:
  // CommonError{spec} if a formula names a target that is not there. `modules`: the TorchScript files of loss
  // and metrics; only the sizes are known without them.
  Objective(const LossConfig& config, TargetShape shape, std::span<const MetricConfig> metrics = {},
            const ModuleScores& modules = {});

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
  std::size_t record_size() const;
  // Whole numbers that belong to the metrics: the sums over all samples and ranks.
  std::size_t count_size() const;
  // Converts a normalised value of a target to physical units, where that is more than a factor and an
  // offset.
  using Physical = std::function<double(double value, std::size_t target)>;
  // Appends record_size() numbers per sample: the loss, TargetSums per target, then the boxes of a detection
  // or the sums of the user's metrics. With `physical`, all of these use physical values, and the guess is
  // the physical value of the normalised mean. Adds to `counts`, of count_size() numbers, if it is not empty.
  void record(std::span<const float> outputs, std::span<const float> truths, std::size_t samples,
              std::vector<double>& records, const Physical& physical = {},
              std::span<std::uint64_t> counts = {}) const;

  // Appends the same for one sample, without the loss, from the outputs of an exported detection.
  void record_detected(std::span<const double> physical, std::span<const double> truths,
                       std::vector<double>& records, std::span<std::uint64_t> counts) const;
  std::span<const UserMetric> metrics() const { return metrics_; }
  // Returns nullptr if the loss is another one.
  const Detection* detection() const { return detection_ ? &*detection_ : nullptr; }

  // TargetErrors::calibration of a target; empty for a loss that predicts no intervals.
  std::vector<std::pair<std::string, double>> calibration(std::size_t target,
                                                          std::span<const std::uint64_t> counts) const;

  const TargetShape& shape() const { return shape_; }
  LossName name() const { return config_.name; }
  const LossConfig& config() const { return config_; }  // with the weights of the classes
  // Number of the first output's channel that is the prediction of target 0; those of the others follow.
  std::size_t prediction_channel() const;
  // With predicts_deviations(): the normalised deviations in the output of a sample, [targets, cells].
  std::vector<double> deviations(std::span<const float> outputs) const;

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
  double quantiles(std::span<const float> outputs, std::span<const float> truths, double scale,
                   std::span<float> gradient) const;
  double module_loss(std::span<const float> outputs, std::span<const float> truths, double scale,
                     std::span<float> gradient) const;
  double mixture(std::span<const float> outputs, std::span<const float> truths, double scale,
                 std::span<float> gradient) const;
  MixtureDensity density_of(std::span<const float> outputs) const;
  void count_density(std::span<const float> outputs, std::span<const float> truths,
                     std::span<std::uint64_t> counts) const;
  std::vector<std::int64_t> sample_shape() const;
  TargetSums class_sums(std::span<const float> outputs, std::span<const float> truths,
                        std::span<std::uint64_t> counts) const;
  void record_metrics(std::span<const float> outputs, std::span<const float> truths, const Physical& physical,
                      std::vector<double>& records) const;
  TargetSums number_sums(std::span<const float> outputs, std::span<const float> truths, std::size_t target,
                         const Physical& physical) const;
  std::size_t counts_of_target() const;
  void count_calibration(std::span<const float> outputs, std::span<const float> truths, std::size_t target,
                         std::span<std::uint64_t> counts) const;
  double score(std::span<const float> outputs, std::span<const float> truths, double scale,
               std::span<float> gradient) const;
  double dice(std::span<const float> outputs, std::span<const float> truths, double scale,
              std::span<float> gradient) const;
  double weight(std::size_t cls) const {
    return config_.class_weights.empty() ? 1.0 : config_.class_weights[cls];
  }

  LossConfig config_;
  TargetShape shape_;
  std::optional<FormulaLoss> formula_;
  std::shared_ptr<const ModuleScore> module_;
  std::optional<Detection> detection_;
  std::vector<UserMetric> metrics_;
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
  double mean_guess_mae = 0;                          // error of the guess
  double variance = 0;                                // variance of the evaluated truths; 0 for classes
  std::optional<Classification> classification = {};  // for classes
  // Shares of the truths that lie within intervals ("within_68" % of a gaussian loss) or below quantiles
  // ("below_0.05").
  std::vector<std::pair<std::string, double>> calibration = {};
  // Those of a detection, of its first target, and the user's own.
  std::vector<NamedMetric> more = {};
  // mae over the guess's; no value if the guess is always right.
  std::optional<double> ratio() const;
  double rmse() const;
  // 1 - mse / variance: the explained share of the variance. No value if the truths do not vary.
  std::optional<double> r2() const;
  bool operator==(const TargetErrors&) const = default;
};

struct Evaluation {
  // One of several heads; its targets follow those of the heads before.
  struct Head {
    std::string name;
    double loss = 0;  // without its weight
    std::size_t targets = 0;
    bool classes = false;
    bool operator==(const Head&) const = default;
  };
  double loss = 0;
  std::vector<TargetErrors> targets;  // none: no sample was evaluated, and there is no loss
  bool classes = false;               // of a single head
  std::vector<Head> heads = {};       // none where there is one
  std::optional<double> mean_ratio() const;
  // For each head an evaluation of its own, with its name; a single head is this evaluation, without a name.
  std::vector<std::pair<std::string, Evaluation>> by_head() const;
};

// `records` of all samples and `counts` of all ranks, summed. `deviations` convert the targets to physical
// units: 1 if the records are physical.
Evaluation evaluate(const Objective& objective, std::span<const double> deviations,
                    std::span<const double> records, std::span<const std::uint64_t> counts = {});

// Names are MetricName::key(), or those of TargetErrors::calibration.
// All metrics but the mean errors; for more than kMostDetailedClasses classes without those of single
// classes.
std::vector<NamedMetric> metrics_of(const TargetErrors& errors);
// Those that a person follows over the epochs: of classes the accuracy, the mean IoU, and that of each of up
// to 16 classes; of a detection the same with mAP, precision and recall.
std::vector<NamedMetric> main_metrics_of(const TargetErrors& errors);
// The metric of the evaluation: the mean over the targets, or that of the metric's target. No value if the
// evaluation does not have it.
std::optional<double> metric_of(const Evaluation& evaluation, const MetricName& metric);

nlohmann::json to_json(const Evaluation& evaluation);

}  // namespace wflow::trainer
