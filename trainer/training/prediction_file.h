// SPDX-License-Identifier: Apache-2.0
// predictions.h5: what the network says of every test sample beside the truth, in physical units. Written
// part by part, so that predicted fields need no memory for a whole split.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "trainer/model/model_export.h"
#include "trainer/training/objective.h"

namespace wflow::trainer {

inline constexpr int kPredictionFormat = 1;  // attribute wflow_format

struct PredictionFileDescription {
  std::array<std::int64_t, 3> extent = {1, 1, 1};  // of a target; 1 1 1 for numbers
  std::string data_hash;                           // of the data set
  std::int64_t epoch = 0;                          // whose weights predict
};

// Datasets, all contiguous, a row a sample in order of the split:
//   /id (N) int64
//   /truth, /prediction: (N, targets) or (N, channels, D, H, W), float32; of classes the class numbers
//   /deviation, with a gaussian loss: the standard deviation, as /prediction
//   /probability, of classes: (N, classes) or (N, classes, D, H, W)
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

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wflow::trainer
