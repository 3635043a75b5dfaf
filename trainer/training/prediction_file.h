// SPDX-License-Identifier: Apache-2.0
// predictions.h5: the prediction for every test sample and the truth, in physical units. Written in parts, so
// that predicted fields need no memory for a whole split.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/model_export.h"
#include "trainer/training/heads.h"

namespace wflow::trainer {

inline constexpr int kPredictionFormat = 1;  // attribute wflow_format

// True if predicted classes are also written as a mask: those of a field's cells, if a byte holds them.
constexpr bool has_mask(std::size_t classes, std::size_t cells) {
  return classes > 0 && classes <= 256 && cells > 1;
}
std::vector<std::uint8_t> mask_of(std::span<const double> classes);

// The shape of a dataset of an output: `before` (the quantiles), the channels, the grid. One channel has no
// axis if the stored field has none.
std::vector<std::int64_t> dataset_shape(std::vector<std::int64_t> before, std::int64_t channels,
                                        bool has_channels, std::span<const std::int64_t> grid);

struct PredictionFileDescription {
  std::string data_hash;   // hash of the data set
  std::int64_t epoch = 0;  // epoch of the weights
  // For each head whose targets are numbers [samples, targets]; empty: as written.
  std::vector<std::vector<double>> truths = {};
};

// Datasets, all contiguous, with a row per sample in order of the split:
//   /id (N) int64
//   /truth, /prediction: (N, targets), or for a field (N, stored shape); for classes the class numbers.
//   float32;
//     float64 for truths that are numbers, and for both if float32 can't hold the targets
//   /deviation, with a gaussian loss: the standard deviation, shaped as /prediction
//   /probability, for classes: (N, classes), or (N, classes, the axes of the grid); for a detection those of
//     the objects
//   /mask, for the classes of a field's cells: uint8 (N, the axes of the grid), the class numbers again
//   /quantile, with a quantile loss: (N, quantiles, shape of a prediction); attribute `quantiles`
// A gaussian loss on transformed fields keeps the transformed units, as in model.pt (attribute `units`).
// With several heads, each has a group with its name, which has these datasets and the attributes `targets`
// and `units`; the attribute `heads` of the file lists them.
class PredictionFile {
 public:
  // Every function throws Error{system} if a write fails.
  // `units`: one for each head.
  PredictionFile(const std::filesystem::path& target, const Heads& heads,
                 const std::vector<OutputUnits>& units, const PredictionFileDescription& description,
                 std::span<const std::int64_t> ids);
  ~PredictionFile();  // removes an unpublished file
  PredictionFile(const PredictionFile&) = delete;
  PredictionFile& operator=(const PredictionFile&) = delete;

  // Writes a head's rows from `first` on: truths [rows, targets, cells], outputs [rows, channels, cells],
  // both normalised.
  void write(std::size_t head, std::size_t first, std::span<const float> truths,
             std::span<const float> outputs);
  void publish();
  // The text of predictions.csv, once all rows are written: of numbers the truth and the prediction, with a
  // gaussian loss its standard deviation; of fields the means and errors of each sample; of a detection the
  // numbers of objects and of boxes with a confidence of at least kConfident.
  std::string table() const;

 private:
  class HeadRows;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::trainer
