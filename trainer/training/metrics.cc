// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/metrics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace wflow::trainer {
namespace {

// Bins of a score's log-odds, which resolve probabilities near 0 and near 1: those of rare classes.
constexpr std::size_t kScoreBins = 4096;
constexpr double kMostLogOdds = 16;

std::size_t score_bin(double probability) {
  if (!(probability > 0)) return 0;  // also NaN, of a network that has diverged
  if (probability >= 1) return kScoreBins - 1;
  const double log_odds = std::log(probability) - std::log1p(-probability);
  const double place =
      (std::clamp(log_odds, -kMostLogOdds, kMostLogOdds) + kMostLogOdds) / (2 * kMostLogOdds);
  return std::min(kScoreBins - 1, static_cast<std::size_t>(place * static_cast<double>(kScoreBins)));
}

std::optional<double> part(double of, double whole) {
  return whole > 0 ? std::optional(of / whole) : std::nullopt;
}

template <typename Value>
std::optional<double> mean(const std::vector<ClassMetrics>& classes, Value value) {
  std::vector<std::optional<double>> values;
  for (const ClassMetrics& one : classes) values.push_back(value(one));
  return mean_of(values);
}

nlohmann::json or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace

std::optional<double> mean_of(std::span<const std::optional<double>> values) {
  double sum = 0;
  double count = 0;
  for (const std::optional<double>& value : values) {
    if (!value) continue;
    sum += *value;
    ++count;
  }
  return part(sum, count);
}

void softmax(std::span<const float> outputs, std::size_t cells, std::size_t cell, std::span<double> to) {
  double most = outputs[cell];
  for (std::size_t k = 1; k < to.size(); ++k) most = std::max<double>(most, outputs[k * cells + cell]);
  double sum = 0;
  for (std::size_t k = 0; k < to.size(); ++k) sum += to[k] = std::exp(outputs[k * cells + cell] - most);
  for (double& p : to) p /= sum;
}

std::optional<double> ClassMetrics::iou() const {
  return part(right, truth + predicted - right);
}
std::optional<double> ClassMetrics::dice() const {
  return part(2 * right, truth + predicted);
}
std::optional<double> ClassMetrics::precision() const {
  return part(right, predicted);
}
std::optional<double> ClassMetrics::recall() const {
  return part(right, truth);
}

std::optional<double> Classification::accuracy() const {
  double right = 0;
  double all = 0;
  for (const ClassMetrics& one : classes) {
    right += one.right;
    all += one.truth;
  }
  return part(right, all);
}

std::optional<double> Classification::mean_iou() const {
  return mean(classes, [](const ClassMetrics& one) { return one.iou(); });
}
std::optional<double> Classification::mean_dice() const {
  return mean(classes, [](const ClassMetrics& one) { return one.dice(); });
}
std::optional<double> Classification::mean_auc() const {
  return mean(classes, [](const ClassMetrics& one) { return one.auc; });
}

nlohmann::json to_json(const Classification& classification) {
  nlohmann::json classes = nlohmann::json::array();
  for (const ClassMetrics& one : classification.classes) {
    classes.push_back({{"truth", one.truth},
                       {"predicted", one.predicted},
                       {"right", one.right},
                       {"iou", or_null(one.iou())},
                       {"dice", or_null(one.dice())},
                       {"precision", or_null(one.precision())},
                       {"recall", or_null(one.recall())},
                       {"auc", or_null(one.auc)}});
  }
  nlohmann::json confusion = nlohmann::json::array();
  const std::size_t count = classification.classes.size();
  for (std::size_t row = 0; row * count < classification.confusion.size(); ++row) {
    const auto begin = classification.confusion.begin() + static_cast<std::ptrdiff_t>(row * count);
    confusion.push_back(std::vector<std::uint64_t>(begin, begin + static_cast<std::ptrdiff_t>(count)));
  }
  nlohmann::json json = {{"accuracy", or_null(classification.accuracy())},
                         {"mean_iou", or_null(classification.mean_iou())},
                         {"mean_dice", or_null(classification.mean_dice())},
                         {"mean_auc", or_null(classification.mean_auc())},
                         {"classes", std::move(classes)}};
  if (!confusion.empty()) json["confusion"] = std::move(confusion);
  return json;
}

namespace {

bool is_detailed(std::size_t classes) {
  return classes <= kMostDetailedClasses;
}

// Detailed counts are the confusion matrix, then for each class the histograms of its scores in the cells of
// other classes and in its own.
std::size_t scores_at(std::size_t classes, std::size_t of_class, bool truth) {
  return classes * classes + (2 * of_class + (truth ? 1 : 0)) * kScoreBins;
}

// The probability that a cell of the class has a higher score than another cell; cells of one bin count half.
std::optional<double> area_under_roc(std::span<const std::uint64_t> of_others,
                                     std::span<const std::uint64_t> of_class) {
  double own = 0;
  double others = 0;
  double higher = 0;
  for (std::size_t bin = 0; bin < kScoreBins; ++bin) {
    const auto in_class = static_cast<double>(of_class[bin]);
    const auto in_others = static_cast<double>(of_others[bin]);
    higher += in_class * (others + 0.5 * in_others);
    own += in_class;
    others += in_others;
  }
  return part(higher, own * others);
}

}  // namespace

// For many classes: the sums of the confusion matrix's rows, of its columns, and its diagonal.
std::size_t class_count_size(std::size_t classes) {
  return is_detailed(classes) ? scores_at(classes, classes, false) : 3 * classes;
}

void count_class(std::size_t truth, std::span<const double> probabilities, std::span<std::uint64_t> counts) {
  const std::size_t classes = probabilities.size();
  WFLOW_CHECK(counts.size() == class_count_size(classes));
  const auto best = std::max_element(probabilities.begin(), probabilities.end());
  const auto predicted = static_cast<std::size_t>(best - probabilities.begin());
  if (!is_detailed(classes)) {
    ++counts[truth];
    ++counts[classes + predicted];
    if (truth == predicted) ++counts[2 * classes + truth];
    return;
  }
  ++counts[truth * classes + predicted];
  for (std::size_t k = 0; k < classes; ++k)
    ++counts[scores_at(classes, k, k == truth) + score_bin(probabilities[k])];
}

Classification classification_of(std::size_t classes, std::span<const std::uint64_t> counts) {
  WFLOW_CHECK(counts.size() == class_count_size(classes));
  Classification all;
  all.classes.resize(classes);
  for (std::size_t k = 0; k < classes; ++k) {
    ClassMetrics& one = all.classes[k];
    if (!is_detailed(classes)) {
      one.truth = static_cast<double>(counts[k]);
      one.predicted = static_cast<double>(counts[classes + k]);
      one.right = static_cast<double>(counts[2 * classes + k]);
      continue;
    }
    for (std::size_t other = 0; other < classes; ++other) {
      one.truth += static_cast<double>(counts[k * classes + other]);
      one.predicted += static_cast<double>(counts[other * classes + k]);
    }
    one.right = static_cast<double>(counts[k * classes + k]);
    one.auc = area_under_roc(counts.subspan(scores_at(classes, k, false), kScoreBins),
                             counts.subspan(scores_at(classes, k, true), kScoreBins));
  }
  if (is_detailed(classes)) {
    const auto matrix = counts.first(classes * classes);
    all.confusion.assign(matrix.begin(), matrix.end());
  }
  return all;
}

std::size_t nearest_to_median(std::span<const double> quantiles) {
  const auto median = std::ranges::min_element(quantiles, {}, [](double q) { return std::abs(q - 0.5); });
  return static_cast<std::size_t>(median - quantiles.begin());
}

}  // namespace wflow::trainer
