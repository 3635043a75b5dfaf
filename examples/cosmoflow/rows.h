// SPDX-License-Identifier: Apache-2.0
// Several universes of one process: a CSV file whose header names options.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "universe.h"

namespace cola {

// Sets one option by name, as it stands in a CSV header: `omega_m`, `omega-m` and `Omega_M` are all
// --omega-m. Throws Error (usage) on an unknown name or a value that is not a number.
void set_option(UniverseSpec& spec, const std::string& name, const std::string& value);

// One spec a row, each starting from `defaults`; checked. `name` is for messages, which give the line.
// Throws Error (input).
std::vector<UniverseSpec> read_rows(std::istream& file, const std::string& name,
                                    const UniverseSpec& defaults);

// Comma-separated numbers.
std::vector<double> parse_numbers(const std::string& text);

// "{index}" in `pattern` replaced.
std::string expand_output(const std::string& pattern, std::uint64_t index);

}  // namespace cola
