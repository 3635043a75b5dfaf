// SPDX-License-Identifier: Apache-2.0
// All fields of one sample, from its files and its parameters.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "converters/config.h"
#include "converters/input/arrange.h"
#include "converters/input/sample_table.h"

namespace wflow::converters {

// The fields in the order of the configuration, masks behind what they mask. `columns`: names of
// row.parameters. Throws Error{data} where the sample is unusable. A file that several fields need is opened
// once.
std::vector<FieldValue> read_sample(const ConvertConfig& config, const std::vector<std::string>& columns,
                                    const SampleRow& row);

// The files that the sample is made of, each once.
std::vector<std::filesystem::path> sample_files(const ConvertConfig& config, const SampleRow& row);

}  // namespace wflow::converters
