// SPDX-License-Identifier: Apache-2.0
// Whose format a study is in, and what differs in how its values are read.
#pragma once

#include <string>
#include <string_view>

#include "base/yaml.h"

namespace wflow::specs {

enum class Dialect {
  ours,
  merlin,
  maestro,
};

// Merlin's: the file has a merlin: block, or nothing of ours and a word that only Merlin has. Maestro's: it
// has nothing of either, and all that Maestro asks for (a description of the study and of every step, and a
// cmd).
Dialect dialect_of(const yaml::Node& root, std::string_view text);

// Merlin and Maestro see a number or a truth value as Python reads and prints it: 0.10 is "0.1", 1.0e-5 is
// "1e-05", yes is "True". Does so with the variables and the values of parameters; what is quoted stays.
void print_values_as_python(yaml::Node& root);

// As Python's str() writes a float: the shortest digits that read back, and always a sign that it is one.
std::string python_text(float value);
std::string python_text(double value);

}  // namespace wflow::specs
