// SPDX-License-Identifier: Apache-2.0
// An exported model as functions of numbers: one for each output, over the box of its training samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
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

// An exact Gaussian process: a surrogate for few samples, with the error of its own predictions. Pure: no
// file.

// Memory and time grow with the square and the cube of the samples.
inline constexpr std::size_t kMostGaussianSamples = 2000;

// The kernel is Matérn's with nu = 5/2 and a length for each input, plus noise; the mean is the samples'
// mean. Lengths, variance and noise maximise the marginal likelihood of the samples (Rasmussen and Williams
// 2006, Gaussian Processes for Machine Learning, 4.17 and 5.9), by Rprop with the derivatives in closed form.
class GaussianProcess {
 public:
  virtual ~GaussianProcess() = default;

  virtual std::vector<double> lengths() const = 0;  // of each input
  virtual double noise() const = 0;                 // standard deviation

  virtual std::vector<double> mean(std::span<const double> points) const = 0;
  // Functions drawn from the posterior, at the points: [draws][rows]. The prior of a draw is made of random
  // Fourier features and corrected at the samples (Wilson et al. 2020, ICML, Efficiently sampling functions
  // from Gaussian process posteriors).
  virtual std::vector<std::vector<double>> draws(std::span<const double> points, std::size_t count,
                                                 std::uint64_t seed) const = 0;
  // The prediction of each sample by a process without the samples of its fold, with the same lengths,
  // variance and noise. As many folds as samples: leave one out.
  virtual std::vector<double> left_out(std::size_t folds, std::uint64_t seed) const = 0;
  // The logarithm of the marginal likelihood of scaled outputs, and its derivatives by the logarithms of the
  // lengths, of the variance and of the noise's variance.
  virtual double likelihood(std::span<const double> logarithms, std::span<double> derivatives) const = 0;
  virtual std::vector<double> logarithms() const = 0;  // where it has its maximum
};

// `points`: [samples, inputs], each input scaled to about [0, 1]. `outputs`: one a sample, not all equal.
std::unique_ptr<GaussianProcess> fit_gaussian_process(std::vector<double> points,
                                                      std::span<const double> outputs);

}  // namespace wflow::trainer
