// SPDX-License-Identifier: Apache-2.0
// Metrics by name, and those of a classification, from counts of cells. All counts are whole numbers: their
// sums over samples and ranks are exact, in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::trainer {

// Classes up to which there are a confusion matrix and ROC curves, and a value of each class in the tables of
// epochs.
inline constexpr std::size_t kMostDetailedClasses = 64;

// Intervals around the mean of a normal distribution that hold so many percent of it.
struct Interval {
  std::string_view name;
  double deviations;
};
inline constexpr std::array<Interval, 2> kIntervals = {
    {{"within_68", 0.994457883209753}, {"within_95", 1.959963984540054}}};

struct NamedMetric {
  std::string name;
  std::optional<double> value;
  bool operator==(const NamedMetric&) const = default;
};

// The mean of those that have a value.
std::optional<double> mean_of(std::span<const std::optional<double>> values);

// The probabilities of the classes in a cell; `outputs` are [classes, cells].
void softmax(std::span<const float> outputs, std::size_t cells, std::size_t cell, std::span<double> to);

// No metric has a value where it is a part of nothing.
struct ClassMetrics {
  double truth = 0;           // cells of this class
  double predicted = 0;       // cells predicted as this class
  double right = 0;           // cells that are both
  std::optional<double> auc;  // area under the ROC curve of this class against all others

  std::optional<double> iou() const;
  std::optional<double> dice() const;
  std::optional<double> precision() const;
  std::optional<double> recall() const;
  bool operator==(const ClassMetrics&) const = default;
};

struct Classification {
  std::vector<ClassMetrics> classes;
  std::vector<std::uint64_t> confusion;  // [truth, predicted]; empty: too many classes, or not kept

  std::optional<double> accuracy() const;
  // Means over the classes that have a value.
  std::optional<double> mean_iou() const;
  std::optional<double> mean_dice() const;
  std::optional<double> mean_auc() const;
  bool operator==(const Classification&) const = default;
};

nlohmann::json to_json(const Classification& classification);

// Whole numbers from which classification_of() follows; those of several ranks are added element by element.
std::size_t class_count_size(std::size_t classes);
// Adds a cell. The predicted class is the first of the most probable ones.
void count_class(std::size_t truth, std::span<const double> probabilities, std::span<std::uint64_t> counts);
Classification classification_of(std::size_t classes, std::span<const std::uint64_t> counts);

// The place of the quantile that is nearest to 0.5, which is the prediction of a quantile loss.
std::size_t nearest_to_median(std::span<const double> quantiles);

}  // namespace wflow::trainer
