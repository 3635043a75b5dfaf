// SPDX-License-Identifier: Apache-2.0
// Whose format a study is in, and what differs in how its values are read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/yaml.h"

namespace wflow::specs {

enum class Dialect {
  ours,
  merlin,
  maestro,
};

// "wflow", "merlin", "maestro": as --dialect and the comment line have them.
std::string_view name_of(Dialect dialect);
std::optional<Dialect> dialect_named(std::string_view name);

struct DialectChoice {
  Dialect dialect = Dialect::ours;
  std::string reason;  // "it has a merlin: block"
  // The file says so. Otherwise the rules of another format would fit it too, and a person should know.
  bool certain = true;
  std::string unknown_comment;  // the word of a comment line "# wflow: WORD" that names no format
};

// Whose format a study is in, by the first of these that says so:
// - `option`: --dialect;
// - a comment line "# wflow: merlin" (or maestro, wflow) that begins in the first column;
// - a merlin: block, or a block or key that only wflow has;
// - `command`: the command line that the file was given to (`merlin run`);
// - a word that only Merlin has; then all that Maestro asks for (a description of the study and of every
//   step, and a cmd) and no key that only wflow has.
DialectChoice choose_dialect(const yaml::Node& root, std::string_view text, std::optional<Dialect> option,
                             std::optional<Dialect> command);

// "read as Merlin's file: it has a merlin: block", and what to do where that is not certain.
std::string describe(const DialectChoice& choice);

// Merlin and Maestro see a number or a truth value as Python reads (YAML 1.1) and prints it: 0.10 is "0.1",
// 010 is "8", 0x1F is "31", 1.0e-5 is "1e-05", yes is "True". Does so with the variables and the values of
// parameters; what is quoted stays.
void print_values_as_python(yaml::Node& root);

// As Python's str() writes a float: the shortest digits that read back, and always a sign that it is one.
std::string python_text(float value);
std::string python_text(double value);

}  // namespace wflow::specs
