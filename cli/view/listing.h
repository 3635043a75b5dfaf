// SPDX-License-Identifier: Apache-2.0
// Campaigns as rows of a table: `wflow ls`, `wflow status --all`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace wflow::cli {

enum class Format { people, json, csv };

// In the order given. `sizes`: with the bytes below each directory, which takes as long as reading all of it.
void print_campaigns(const std::vector<std::filesystem::path>& campaigns, Format format, bool sizes);

// A directory relative to the current one, where that is shorter.
std::string short_name(const std::filesystem::path& directory);

// Of what is below it; files come and go while a campaign runs.
std::uint64_t bytes_below(const std::filesystem::path& directory);

}  // namespace wflow::cli
