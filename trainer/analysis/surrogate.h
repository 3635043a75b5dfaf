// SPDX-License-Identifier: Apache-2.0
// An exported model as functions of numbers: one for each output, over the box of its training samples.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/exported_model.h"

namespace wflow::trainer {

struct InputRange {
  std::string name;
  double low = 0;  // the least and the greatest value of the training samples
  double high = 0;
};

class Surrogate {
 public:
  // Error{data} if an input is a field or a random number, or if the file has no ranges.
  explicit Surrogate(const std::filesystem::path& file);

  const std::vector<InputRange>& inputs() const { return inputs_; }
  // The numbers that the model predicts: of a field its mean over the cells, of a class its probability.
  // Without the deviations of a gaussian loss, with the quantile nearest to the median.
  std::vector<std::string> outputs() const;
  // True if any output is the mean of a field.
  bool has_fields() const;

  // The training samples of a data set. Error{data} if it lacks an input.
  struct Samples {
    std::vector<double> points;  // [samples, inputs]
    std::vector<std::vector<double>>
        outputs;  // [outputs][samples]; empty for classes, fields, missing truths
  };
  Samples samples(const std::filesystem::path& data) const;

  // `points`: [rows, inputs], physical. Returns [outputs][rows].
  std::vector<std::vector<double>> values(std::span<const double> points);
  // The derivatives of an output by each input: [rows, inputs].
  std::vector<double> gradients(std::span<const double> points, std::size_t output);

 private:
  struct Output {
    std::string name;
    std::size_t head = 0;
    std::size_t first = 0;  // among the values of the head in a row
    std::size_t cells = 1;
    std::size_t target = 0;  // of the head
  };
  void read_inputs(const std::filesystem::path& file);
  void add_outputs(std::size_t head, const ModelArray& array);
  static std::vector<std::string> targets_in_data(const ExportedModel::Head& head);
  std::vector<ModelArray> arrays(std::span<const double> points) const;

  std::unique_ptr<ExportedModel> model_;
  std::vector<InputRange> inputs_;
  std::vector<std::size_t> widths_;  // of each input of the model, in numbers
  std::vector<Output> outputs_;
};

}  // namespace wflow::trainer
