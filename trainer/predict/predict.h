// SPDX-License-Identifier: Apache-2.0
// Predictions of an exported model: `wflow predict MODEL DATA`.
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
  std::string model;  // a TorchScript file, or the folder of a training with model.pt
  // A data set of wflow-convert, a table (.csv) with a column for each input, an HDF5 file with a dataset for
  // each input, or, for a model that only reads random numbers, how many samples to make.
  std::string data;
  std::uint64_t seed = 1;     // of random inputs
  std::string output;         // .csv or .h5; empty: CSV on standard output
  std::string split = "all";  // for a data set: train, validation, test or all
  std::string layer;          // only this head, or a layer of the network as it computes it; empty: all heads
  std::size_t batch = 16;     // samples per forward pass
};

// CSV: id, the table's columns or the truths that the data have, TARGET_predicted, and with a gaussian loss
// TARGET_deviation; fields need HDF5 (docs/formats/predictions.md). Numbers are physical. With truths, a
// table of errors goes to standard error. Error{data} or Error{usage} if model, data and options do not fit.
void predict(const PredictOptions& options);

// Samples to predict, from a data set, from a table, or from an HDF5 file.
class PredictionRows {
 public:
  virtual ~PredictionRows() = default;
  virtual std::size_t size() const = 0;
  virtual std::int64_t id(std::size_t row) const = 0;
  // In order of the model's inputs, as stored: fields [count, C, ...], numbers [count, 1].
  virtual std::vector<ModelArray> inputs(std::size_t first, std::size_t count) const = 0;

  // Physical truths of a head [count, targets] or [count, C, D, H, W]; empty if the data do not have them.
  virtual bool has_truths(std::size_t /*head*/) const { return false; }
  virtual std::vector<double> truths(std::size_t head, std::size_t first, std::size_t count) const;
  // The guess that the error is compared with: each target's mean in the training split, or the most frequent
  // class.
  virtual std::vector<double> guesses(std::size_t /*head*/, bool /*classes*/) const { return {}; }
  virtual std::string data_hash() const { return {}; }

  // Columns of a table to repeat in the output: names, and the cells of a row.
  virtual std::vector<std::string> column_names() const { return {}; }
  virtual std::span<const std::string> columns(std::size_t) const { return {}; }
};

// `inputs` are the model's names; empty: all inputs of the data. `targets` are the names of each head's
// targets. `split` is train, validation, test or all. Error{data} if the data set or an input does not exist.
std::unique_ptr<PredictionRows> rows_of_dataset(const std::filesystem::path& directory,
                                                const std::vector<std::string>& inputs,
                                                const std::vector<std::vector<std::string>>& targets,
                                                const std::string& split);
// `shapes`: ExportedModel::shapes(), of the inputs. Error{data} if the file is no HDF5 file with a dataset
// for each input, or if their shapes differ.
std::unique_ptr<PredictionRows> rows_of_file(const std::filesystem::path& file,
                                             const std::vector<std::string>& inputs,
                                             std::span<const std::vector<std::int64_t>> shapes);
// Adds the model's random inputs to rows of the others, or to `count` rows without any (nullptr). The values
// are a function of `seed` and the row.
struct RandomNumbers {
  std::vector<std::size_t> sizes;  // per input of the model; 0: not random
  std::uint64_t seed = 1;
};
std::unique_ptr<PredictionRows> rows_with_random_inputs(std::unique_ptr<PredictionRows> rows,
                                                        std::size_t count, RandomNumbers random);
// `columns`: ExportedModel::columns(). The ids are in the column `id`, if there is one; else rows count
// from 0.
std::unique_ptr<PredictionRows> rows_of_table(const std::filesystem::path& file,
                                              const std::vector<std::string>& inputs,
                                              const std::vector<std::vector<std::string>>& columns);

// Those of `options.data`, with random inputs where the model reads them.
std::unique_ptr<PredictionRows> rows_of(const PredictOptions& options, const ExportedModel& model);

// "2 x 32 x 32"
std::string extents_text(std::span<const std::int64_t> shape);

// A head's targets as the data name them: without the head's name, which tells two targets of one name apart.
std::vector<std::string> names_in_data(const ExportedModel::Head& head);

}  // namespace wflow::trainer
