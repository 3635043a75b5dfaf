// SPDX-License-Identifier: Apache-2.0
// A proposal: from the samples so far to the next ones.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "propose/config.h"
#include "propose/known.h"

namespace wflow::propose {

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
