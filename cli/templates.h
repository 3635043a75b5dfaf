// SPDX-License-Identifier: Apache-2.0
// The studies that `wflow init` writes: cli/templates/*.yaml, built into the program.
#pragma once

#include <span>
#include <string_view>

namespace wflow::cli {

struct Template {
  std::string_view name;
  std::string_view about;  // description in one line
  std::string_view text;   // the YAML file
};

// In the order of their names.
std::span<const Template> templates();

}  // namespace wflow::cli
