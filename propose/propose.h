// SPDX-License-Identifier: Apache-2.0
// A proposal: from the samples so far to the next ones.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "propose/config.h"

namespace wflow::propose {

// The samples so far and their values.

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

// Files in the folder of the results.
inline constexpr std::string_view kNewFile = "new.csv";
inline constexpr std::string_view kValuesFile = "values.csv";
inline constexpr std::string_view kRecordFile = "proposal.json";

struct Proposal {
  std::vector<std::vector<double>> inputs;
  double promised = 0;     // the worth of the first of them; 0 if there is none
  bool converged = false;  // by 'until', or because no other point is possible
  std::string sentence;    // for the user
};

// `record` gets the content of proposal.json. Throws Error{data} if the values can't carry a model.
// `folder`: where the tables for trained models may lie.
Proposal propose(const ProposeConfig& config, const Known& known, const std::filesystem::path& folder,
                 nlohmann::json& record);

// The bounds in the record of an earlier iteration.
std::vector<Bound> recorded_bounds(const std::filesystem::path& record);

// Reads the samples, proposes, writes the three files and the event that ends the iterations. `samples`: the
// table of add_samples(), empty without a campaign. Prints a line.
void run(ProposeConfig config, const std::filesystem::path& samples);

}  // namespace wflow::propose
