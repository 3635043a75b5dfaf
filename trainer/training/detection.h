// SPDX-License-Identifier: Apache-2.0
// Detection of objects on a grid: each cell says if the centre of an object is in it, and gives the object's
// class and box (Redmon et al. 2016; Kurth et al. 2017).
//
// The targets of a cell: 1 for the centre of an object, else 0; its class; the centre within the cell, from 0
// to 1 along each axis; the lengths of the box along each axis, in cells. A cell counts nowhere if one of
// these is NaN; without an object only the first value counts.
//
// The network's outputs: the log-odds of an object; one value for each class; the centre less 0.5; the
// logarithms of the lengths. The physical outputs, which an exported model gives: the probability of an
// object, those of the classes, the centre and the lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"
#include "trainer/training/metrics.h"

namespace wflow::trainer {

// Boxes with at least this confidence are counted in precision and recall (Kurth et al. 2017).
inline constexpr double kConfident = 0.8;

// Places of the values of a cell, in targets and in outputs.
struct DetectionChannels {
  std::size_t classes = 1;
  std::size_t axes = 2;
  std::size_t targets() const { return 2 + 2 * axes; }
  std::size_t outputs() const { return 1 + classes + 2 * axes; }
  // The physical outputs [outputs(), cells] of a sample as its targets would be: the most probable class in
  // place of the classes' probabilities.
  std::vector<double> prediction(std::span<const double> physical) const;
};

class Detection {
 public:
  // `grid`: the lengths of the axes. `name`: of the first target, for messages.
  Detection(const LossConfig& loss, std::size_t classes, std::vector<std::int64_t> grid, std::string name);

  const DetectionChannels& channels() const { return channels_; }
  std::size_t cells() const { return cells_; }

  // The loss of a sample, summed over the cells that count: the logistic loss of the confidence, and where
  // there is an object the cross entropy of its class and the smooth L1 loss of its box. Fills `gradient`
  // with scale * its slopes. Error{data} for targets that are none.
  double loss(std::span<const float> outputs, std::span<const float> truths, double scale,
              std::span<float> gradient) const;
  // Cells of a sample over those that count; 1 if none counts.
  double padding_factor(std::span<const float> truths) const;

  // The physical outputs of a sample.
  std::vector<double> physical(std::span<const float> outputs) const;

  // Absolute and squared errors of one target of a sample, over the cells that have it. For the classes these
  // are errors, not distances.
  struct Sums {
    double absolute = 0;
    double squared = 0;
    double guess = 0;  // absolute error of "no object"; 0 for the other targets
    double truth = 0;  // 0 for the classes
    double truth_squared = 0;
    double cells = 0;
  };
  Sums sums(std::span<const double> physical, std::span<const double> truths, std::size_t target) const;

  // Appends record_size() numbers of a sample: its most confident boxes, and which of them are right. A box
  // is right if it overlaps an object of its class with an IoU of 0.5 that no box of a higher confidence has
  // taken. Adds the objects of each class to `counts`.
  void record(std::span<const double> physical, std::span<const double> truths, std::vector<double>& records,
              std::span<std::uint64_t> counts) const;
  std::size_t record_size() const;
  std::size_t count_size() const { return channels_.classes; }

  // From the records of all samples, in their order, which decides between boxes of equal confidence.
  std::vector<NamedMetric> metrics(std::span<const double> records,
                                   std::span<const std::uint64_t> counts) const;

 private:
  struct Box;
  struct Found;
  std::size_t axes() const { return channels_.axes; }
  bool counts(std::span<const double> truths, std::size_t cell) const;
  bool has_object(double value) const;
  std::size_t class_at(double value) const;
  double length_at(double value) const;
  Box box_at(std::span<const double> boxes, std::size_t cell) const;
  std::vector<Found> most_confident(std::span<const double> physical, std::span<const double> truths) const;
  double weight(std::size_t cls) const;

  LossConfig config_;
  DetectionChannels channels_;
  std::vector<std::int64_t> grid_;
  std::size_t cells_ = 1;
  std::string name_;
};

// Area under the curve of precision over recall, each precision being the highest one at its recall or above.
// `right`: of all boxes of a class, the most confident one first.
double average_precision(const std::vector<bool>& right, std::uint64_t objects);

}  // namespace wflow::trainer
