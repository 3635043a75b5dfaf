// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/detection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kMostBoxes = 100;  // of a sample in the metrics, as for COCO
constexpr double kOverlap = 0.5;         // IoU from which on a box is right
constexpr std::size_t kMostAxes = 3;     // the most that a grid has
constexpr double kWholeRounding = 1e-3;  // of whole numbers

double logistic(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// log(1 + exp(x))
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

std::size_t most_probable(std::span<const double> probabilities, std::size_t classes, std::size_t cells,
                          std::size_t cell) {
  std::size_t best = 0;
  for (std::size_t k = 1; k < classes; ++k)
    if (probabilities[k * cells + cell] > probabilities[best * cells + cell]) best = k;
  return best;
}

}  // namespace

std::vector<double> DetectionChannels::prediction(std::span<const double> physical) const {
  const std::size_t cells = physical.size() / outputs();
  std::vector<double> values(physical.begin(), physical.begin() + static_cast<std::ptrdiff_t>(cells));
  for (std::size_t cell = 0; cell < cells; ++cell)
    values.push_back(static_cast<double>(most_probable(physical.subspan(cells), classes, cells, cell)));
  const std::span<const double> boxes = physical.subspan((1 + classes) * cells);
  values.insert(values.end(), boxes.begin(), boxes.end());
  return values;
}

// In cells of the grid.
struct Detection::Box {
  std::array<double, kMostAxes> centre = {};
  std::array<double, kMostAxes> length = {};

  double overlap(const Box& other, std::size_t axes) const {
    double shared = 1, own = 1, others = 1;
    for (std::size_t a = 0; a < axes; ++a) {
      const double low = std::max(centre[a] - length[a] / 2, other.centre[a] - other.length[a] / 2);
      const double high = std::min(centre[a] + length[a] / 2, other.centre[a] + other.length[a] / 2);
      shared *= std::max(0.0, high - low);
      own *= length[a];
      others *= other.length[a];
    }
    return shared / (own + others - shared);
  }
};

struct Detection::Found {
  double confidence = 0;
  std::size_t cls = 0;
  Box box = {};
};

Detection::Detection(const LossConfig& loss, std::size_t classes, std::vector<std::int64_t> grid,
                     std::string name)
    : config_(loss), channels_{classes, grid.size()}, grid_(std::move(grid)), name_(std::move(name)) {
  WFLOW_CHECK(!grid_.empty() && grid_.size() <= kMostAxes && classes > 0);
  for (const std::int64_t length : grid_) cells_ *= static_cast<std::size_t>(length);
}

bool Detection::has_object(double value) const {
  if (std::abs(value) < kWholeRounding) return false;
  if (std::abs(value - 1) < kWholeRounding) return true;
  throw Error(
      ExitCode::data,
      fmt::format("the target '{}' is {}, and a detection needs 1 in the cell of an object's centre, 0 "
                  "in other cells, and NaN where this is not known",
                  name_, value));
}

std::size_t Detection::class_at(double value) const {
  const double nearest = std::round(value);
  if (nearest >= 0 && nearest < static_cast<double>(channels_.classes) &&
      std::abs(value - nearest) < kWholeRounding)
    return static_cast<std::size_t>(nearest);
  throw Error(
      ExitCode::data,
      fmt::format("the class of an object of '{}' is {}, and the loss needs whole class numbers from 0 "
                  "to {}",
                  name_, value, channels_.classes - 1));
}

double Detection::length_at(double value) const {
  if (value > 0) return value;
  throw Error(ExitCode::data, fmt::format("the box of an object of '{}' has the length {}: the lengths, in "
                                          "cells, must be above 0",
                                          name_, value));
}

bool Detection::counts(std::span<const double> truths, std::size_t cell) const {
  if (std::isnan(truths[cell])) return false;
  for (std::size_t k = 1; k < channels_.targets() && has_object(truths[cell]); ++k)
    if (std::isnan(truths[k * cells_ + cell])) return false;
  return true;
}

double Detection::padding_factor(std::span<const float> truths) const {
  const std::vector<double> wide(truths.begin(), truths.end());
  std::size_t count = 0;
  for (std::size_t cell = 0; cell < cells_; ++cell) count += counts(wide, cell) ? 1 : 0;
  return count == 0 ? 1 : static_cast<double>(cells_) / static_cast<double>(count);
}

double Detection::weight(std::size_t cls) const {
  return config_.class_weights.empty() ? 1 : config_.class_weights[cls];
}

double Detection::loss(std::span<const float> outputs, std::span<const float> truths, double scale,
                       std::span<float> gradient) const {
  const std::vector<double> wide(truths.begin(), truths.end());
  const std::size_t first_box = 1 + channels_.classes;
  std::vector<double> p(channels_.classes);
  std::ranges::fill(gradient, 0.0F);
  double sum = 0;
  for (std::size_t cell = 0; cell < cells_; ++cell) {
    if (!counts(wide, cell)) continue;
    const double odds = outputs[cell];
    if (!has_object(wide[cell])) {
      sum += config_.empty_weight * softplus(odds);
      gradient[cell] = static_cast<float>(scale * config_.empty_weight * logistic(odds));
      continue;
    }
    sum += softplus(-odds);
    gradient[cell] = static_cast<float>(scale * (logistic(odds) - 1));
    const std::size_t truth = class_at(wide[cells_ + cell]);
    softmax(outputs.subspan(cells_), cells_, cell, p);
    sum -= weight(truth) * std::log(std::max(p[truth], 1e-300));
    for (std::size_t k = 0; k < p.size(); ++k)
      gradient[(1 + k) * cells_ + cell] =
          static_cast<float>(scale * weight(truth) * (p[k] - (k == truth ? 1 : 0)));
    for (std::size_t k = 0; k < 2 * axes(); ++k) {
      const double given = wide[(2 + k) * cells_ + cell];
      const double target = k < axes() ? given - 0.5 : std::log(length_at(given));
      const std::size_t at = (first_box + k) * cells_ + cell;
      const double difference = outputs[at] - target;
      const double size = std::abs(difference);
      sum += config_.box_weight * (size < 1 ? 0.5 * difference * difference : size - 0.5);
      gradient[at] = static_cast<float>(scale * config_.box_weight * std::clamp(difference, -1.0, 1.0));
    }
  }
  return sum;
}

std::vector<double> Detection::physical(std::span<const float> outputs) const {
  std::vector<double> values(outputs.begin(), outputs.end());
  std::vector<double> p(channels_.classes);
  const std::size_t lengths = (1 + channels_.classes + axes()) * cells_;
  for (std::size_t cell = 0; cell < cells_; ++cell) {
    values[cell] = logistic(values[cell]);
    softmax(outputs.subspan(cells_), cells_, cell, p);
    for (std::size_t k = 0; k < p.size(); ++k) values[(1 + k) * cells_ + cell] = p[k];
  }
  for (std::size_t i = (1 + channels_.classes) * cells_; i < lengths; ++i) values[i] += 0.5;
  for (std::size_t i = lengths; i < values.size(); ++i) values[i] = std::exp(values[i]);
  return values;
}

Detection::Sums Detection::sums(std::span<const double> physical, std::span<const double> truths,
                                std::size_t target) const {
  const std::size_t channel = target < 2 ? target : target + channels_.classes - 1;
  Sums sums;
  for (std::size_t cell = 0; cell < cells_; ++cell) {
    if (!counts(truths, cell) || (target > 0 && !has_object(truths[cell]))) continue;
    ++sums.cells;
    const double truth = truths[target * cells_ + cell];
    if (target == 1) {
      const std::size_t found = most_probable(physical.subspan(cells_), channels_.classes, cells_, cell);
      sums.absolute += found == class_at(truth) ? 0 : 1;
      sums.squared = sums.absolute;
      continue;
    }
    const double difference = physical[channel * cells_ + cell] - truth;
    sums.absolute += std::abs(difference);
    sums.squared += difference * difference;
    sums.truth += truth;
    sums.truth_squared += truth * truth;
    if (target == 0) sums.guess += truth;
  }
  return sums;
}

// `boxes`: the centres and the lengths, [2 * axes, cells].
Detection::Box Detection::box_at(std::span<const double> boxes, std::size_t cell) const {
  Box box;
  std::size_t left = cell;
  for (std::size_t a = axes(); a-- > 0;) {
    const auto length = static_cast<std::size_t>(grid_[a]);
    box.centre[a] = static_cast<double>(left % length) + boxes[a * cells_ + cell];
    box.length[a] = boxes[(axes() + a) * cells_ + cell];
    left /= length;
  }
  return box;
}

std::vector<Detection::Found> Detection::most_confident(std::span<const double> physical,
                                                        std::span<const double> truths) const {
  std::vector<Found> boxes;
  for (std::size_t cell = 0; cell < cells_; ++cell) {
    if (!counts(truths, cell)) continue;
    // A network that has diverged is not confident.
    const double confidence = std::isnan(physical[cell]) ? 0 : physical[cell];
    boxes.push_back({confidence, most_probable(physical.subspan(cells_), channels_.classes, cells_, cell),
                     box_at(physical.subspan((1 + channels_.classes) * cells_), cell)});
  }
  std::ranges::stable_sort(boxes, std::greater<>(), &Found::confidence);
  if (boxes.size() > kMostBoxes) boxes.resize(kMostBoxes);
  return boxes;
}

namespace {

// Numbers of a box in a record: its confidence, its class, and 1 if it is right. All records have the same
// length: kNoBox is the class of the boxes that a sample does not have.
constexpr std::size_t kNumbersOfBox = 3;
constexpr double kNoBox = -1;

}  // namespace

std::size_t Detection::record_size() const {
  return kNumbersOfBox * std::min(cells_, kMostBoxes);
}

void Detection::record(std::span<const double> physical, std::span<const double> truths,
                       std::vector<double>& records, std::span<std::uint64_t> counts_of_classes) const {
  struct Object {
    std::size_t cls;
    Box box;
    bool taken = false;
  };
  std::vector<Object> objects;
  for (std::size_t cell = 0; cell < cells_; ++cell) {
    if (!counts(truths, cell) || !has_object(truths[cell])) continue;
    objects.push_back({class_at(truths[cells_ + cell]), box_at(truths.subspan(2 * cells_), cell)});
    if (!counts_of_classes.empty()) ++counts_of_classes[objects.back().cls];
  }
  const std::size_t end = records.size() + record_size();
  for (const Found& found : most_confident(physical, truths)) {
    Object* best = nullptr;
    double most = kOverlap;
    for (Object& object : objects) {
      const double overlap = object.box.overlap(found.box, axes());
      if (object.taken || object.cls != found.cls || !(overlap >= most)) continue;
      best = &object;
      most = overlap;
    }
    if (best != nullptr) best->taken = true;
    records.insert(records.end(),
                   {found.confidence, static_cast<double>(found.cls), best != nullptr ? 1.0 : 0.0});
  }
  while (records.size() < end) records.insert(records.end(), {0.0, kNoBox, 0.0});
}

double average_precision(const std::vector<bool>& right, std::uint64_t objects) {
  std::vector<double> precisions;  // at each box that is right
  for (std::size_t i = 0; i < right.size(); ++i)
    if (right[i])
      precisions.push_back(static_cast<double>(precisions.size() + 1) / static_cast<double>(i + 1));
  double area = 0;
  double highest = 0;
  for (std::size_t i = precisions.size(); i-- > 0;) {
    highest = std::max(highest, precisions[i]);
    area += highest;
  }
  return area / static_cast<double>(objects);
}

std::vector<NamedMetric> Detection::metrics(std::span<const double> records,
                                            std::span<const std::uint64_t> counts_of_classes) const {
  struct OfClass {
    std::vector<std::pair<double, bool>> boxes{};  // confidence, and whether it is right
    ClassMetrics confident{};                      // boxes from kConfident on
    std::optional<double> area{};
  };
  std::vector<OfClass> classes(channels_.classes);
  for (std::size_t i = 0; i < records.size(); i += kNumbersOfBox) {
    if (records[i + 1] == kNoBox) continue;
    OfClass& one = classes[static_cast<std::size_t>(records[i + 1])];
    const bool right = records[i + 2] > 0;
    one.boxes.emplace_back(records[i], right);
    if (records[i] < kConfident) continue;
    ++one.confident.predicted;
    if (right) ++one.confident.right;
  }
  std::vector<ClassMetrics> confident;
  std::vector<std::optional<double>> areas;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    OfClass& one = classes[k];
    one.confident.truth = static_cast<double>(counts_of_classes[k]);
    std::ranges::stable_sort(one.boxes, std::greater<>(), &std::pair<double, bool>::first);
    std::vector<bool> right;
    for (const auto& [confidence, is_right] : one.boxes) right.push_back(is_right);
    if (counts_of_classes[k] > 0) one.area = average_precision(right, counts_of_classes[k]);
    confident.push_back(one.confident);
    areas.push_back(one.area);
  }
  std::vector<NamedMetric> metrics = {{"map", mean_of(areas)}};
  std::vector<std::optional<double>> precisions, recalls;
  for (const ClassMetrics& one : confident) {
    precisions.push_back(one.precision());
    recalls.push_back(one.recall());
  }
  metrics.push_back({"mean_precision", mean_of(precisions)});
  metrics.push_back({"mean_recall", mean_of(recalls)});
  for (std::size_t k = 0; k < classes.size() && classes.size() <= kMostDetailedClasses; ++k) {
    metrics.push_back({fmt::format("ap_{}", k), areas[k]});
    metrics.push_back({fmt::format("precision_{}", k), precisions[k]});
    metrics.push_back({fmt::format("recall_{}", k), recalls[k]});
  }
  return metrics;
}

}  // namespace wflow::trainer
