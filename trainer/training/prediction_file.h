// SPDX-License-Identifier: Apache-2.0
// predictions.h5: what the network says of every test sample beside the truth, in physical units. Written
// part by part, so that predicted fields need no memory for a whole split.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/model_export.h"
#include "trainer/training/objective.h"

namespace wflow::trainer {

inline constexpr int kPredictionFormat = 1;  // attribute wflow_format

struct PredictionFileDescription {
  std::vector<std::int64_t> grid = {};   // of a target, without axes that the data do not have; empty: numbers
  bool without_channels = false;         // the one field that is predicted has no axis of channels
  std::string data_hash;                 // of the data set
  std::int64_t epoch = 0;                // whose weights predict
  std::vector<double> truths = {};       // of targets that are numbers: [samples, targets]; empty: as written
};

// Datasets, all contiguous, a row a sample in order of the split:
//   /id (N) int64
//   /truth, /prediction: (N, targets), or of a field (N, the shape that the data have); of classes the class
//     numbers. float32; truths that are numbers, and all where float32 can't hold the targets, float64
//   /deviation, with a gaussian loss: the standard deviation, as /prediction
//   /probability, of classes: (N, classes), or (N, classes, the axes of the grid)
// A gaussian loss on transformed fields keeps the transformed units, as model.pt does (attribute `units`).
class PredictionFile {
 public:
  // All throw Error{system} where the disk refuses.
  PredictionFile(const std::filesystem::path& target, const Objective& objective, const ExportedUnits& units,
                 const PredictionFileDescription& description, std::span<const std::int64_t> ids);
  ~PredictionFile();  // an unpublished file is removed
  PredictionFile(const PredictionFile&) = delete;
  PredictionFile& operator=(const PredictionFile&) = delete;

  // Rows from `first` on, as the network sees them: truths [rows, targets, cells], outputs [rows, channels,
  // cells], both normalised.
  void write(std::size_t first, std::span<const float> truths, std::span<const float> outputs);
  void publish();
  // predictions.csv of field targets, once all rows are written: of a field of several cells its means and errors
  // of each sample, of one cell the value itself.
  std::string table() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::trainer
