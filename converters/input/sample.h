// SPDX-License-Identifier: Apache-2.0
// All fields of one sample, from its files and its parameters.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "converters/config.h"
#include "converters/input/arrange.h"
#include "converters/input/sample_table.h"

namespace wflow::converters {

// Reads samples one after the other, on one thread. The files of a stacked sample stay open for the next one
// of the same files. Keeps references to its arguments.
class SampleReader {
 public:
  // `columns`: names of the rows' parameters.
  SampleReader(const ConvertConfig& config, const std::vector<std::string>& columns);
  ~SampleReader();
  SampleReader(SampleReader&&) noexcept;

  // The fields in the order of the configuration, masks behind what they mask. Throws Error{data} where the
  // sample is unusable. A file that several fields need is opened once.
  std::vector<FieldValue> read(const SampleRow& row);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The files that the sample is made of, each once; none of a field of a file that was not handed over.
std::vector<std::filesystem::path> sample_files(const ConvertConfig& config, const SampleRow& row);

}  // namespace wflow::converters
