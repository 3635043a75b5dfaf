// SPDX-License-Identifier: Apache-2.0
// What an exported model says of samples: `wflow predict MODEL DATA`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/model/exported_model.h"

namespace wflow::trainer {

struct PredictOptions {
  std::string model;          // a TorchScript file, or the folder of a training with model.pt
  std::string data;           // a data set of wflow-convert, or a table (.csv) with a column for each input
  std::string output;         // .csv or .h5; empty: CSV on standard output
  std::string split = "all";  // of a data set: train, validation, test or all of them
  std::size_t batch = 16;     // samples a forward pass
};

// CSV: id, the table's columns or the truths that the data have, TARGET_predicted, and with a gaussian loss
// TARGET_deviation; fields go to HDF5 alone (docs/formats/predictions.md). Numbers are physical. With truths,
// a table of errors goes to standard error. Error{data} or Error{usage} with what does not suit.
void predict(const PredictOptions& options);

// Samples to predict, from a data set or from a table.
class PredictionRows {
 public:
  virtual ~PredictionRows() = default;
  virtual std::size_t size() const = 0;
  virtual std::int64_t id(std::size_t row) const = 0;
  // In order of the model's inputs, as they are stored: fields [count, C, ...], numbers [count, 1].
  virtual std::vector<ModelArray> inputs(std::size_t first, std::size_t count) const = 0;

  // Physical truths [count, targets] or [count, C, D, H, W]; nothing where the data do not have them.
  virtual bool has_truths() const { return false; }
  virtual std::vector<double> truths(std::size_t first, std::size_t count) const;
  // Of the training split of the data: what the error is compared with, the mean of each target, or the most
  // frequent class.
  virtual std::vector<double> guesses(bool /*classes*/) const { return {}; }
  virtual std::string data_hash() const { return {}; }

  // Cells of a table, to repeat in what is written: names, and those of a row.
  virtual std::vector<std::string> column_names() const { return {}; }
  virtual std::span<const std::string> columns(std::size_t) const { return {}; }
};

// `inputs` and `targets` as the model names them; empty ones are all that the data have as such. `split` is
// train, validation, test or all. Error{data} where the data set or an input is not there.
std::unique_ptr<PredictionRows> rows_of_dataset(const std::filesystem::path& directory,
                                                const std::vector<std::string>& inputs,
                                                const std::vector<std::string>& targets,
                                                const std::string& split);
// `columns`: the model's, of each input (ExportedModel). The column `id` has the ids, where there is one;
// else rows count from 0.
std::unique_ptr<PredictionRows> rows_of_table(const std::filesystem::path& file,
                                              const std::vector<std::string>& inputs,
                                              const std::vector<std::vector<std::string>>& columns);

}  // namespace wflow::trainer
