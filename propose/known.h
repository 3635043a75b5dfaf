// SPDX-License-Identifier: Apache-2.0
// The samples so far and their values.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "propose/config.h"

namespace wflow::propose {

struct KnownSample {
  std::vector<double> inputs;   // in the order of the bounds
  std::optional<double> value;  // nothing if the simulation failed or its value is not finite
};

struct Known {
  std::vector<KnownSample> samples;
  std::string first_problem;  // a sentence about the first sample without a value
  std::size_t with_value() const;
};

// The value in a file's text by `value` or `regex` of the block. Nothing if the text has none; `problem` then
// has the reason. Throws Error{data} if a choice between several numbers is missing.
std::optional<double> value_of(std::string_view text, const std::filesystem::path& file,
                               const ProposeConfig& config, std::string& problem);

// Adds the rows of a table with a column for each input and a last one with the values, which may be empty.
void add_table(Known& known, const std::filesystem::path& file, const std::vector<Bound>& bounds);

// Adds the samples of an iteration: rows of a table with a column for each input and a last one, `file`, with
// the path of the sample's value.
void add_samples(Known& known, const std::filesystem::path& file, const ProposeConfig& config);

// The table that add_table() reads.
std::string table_of(const Known& known, const std::vector<Bound>& bounds);

}  // namespace wflow::propose
