// SPDX-License-Identifier: Apache-2.0
// What an exported model says of samples: `wflow predict MODEL DATA`.
#pragma once

#include <cstddef>
#include <string>

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

}  // namespace wflow::trainer
