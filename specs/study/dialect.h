// SPDX-License-Identifier: Apache-2.0
// The format of a study (wflow's, Merlin's or Maestro's), and the differences in reading its values.
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

// "wflow", "merlin", "maestro": as in --dialect and the comment line.
std::string_view name_of(Dialect dialect);
std::optional<Dialect> dialect_named(std::string_view name);

struct DialectChoice {
  Dialect dialect = Dialect::ours;
  std::string reason;  // "it has a merlin: block"
  // The file names its format. Otherwise the rules of another format fit it too, and the user should know.
  bool certain = true;
  std::string unknown_comment;  // the word of a comment line "# wflow: WORD" that names no format
};

// The format of a study, by the first of these that decides:
// - `option`: --dialect;
// - a comment line "# wflow: merlin" (or maestro, wflow) that begins in the first column;
// - a merlin: block, or a block or key that only wflow has;
// - `command`: the command line that the file was given to (`merlin run`);
// - in a file with all that Merlin and Maestro ask for (a description of the study and of every step, and a
//   cmd): a word that only Merlin has, or a key that wflow does not use.
// Otherwise the file is wflow's own. Where it could be Maestro's, too, both readings do the same.
DialectChoice choose_dialect(const yaml::Node& root, std::string_view text, std::optional<Dialect> option,
                             std::optional<Dialect> command);

// "read as Merlin's file: it has a merlin: block", and what to do if that is not certain.
std::string describe(const DialectChoice& choice);

// Merlin and Maestro see a number or a truth value as Python reads (YAML 1.1) and prints it: 0.10 is "0.1",
// 010 is "8", 0x1F is "31", 1.0e-5 is "1e-05", yes is "True". Does the same with the variables and the
// values of parameters; quoted text stays unchanged.
void print_values_as_python(yaml::Node& root);

// Warns of the values that print_values_as_python() would change.
void warn_of_other_values(const yaml::Node& root, yaml::Diagnostics& diagnostics);

// Writes a float as Python's str() does: the shortest digits that read back, always with a point or an
// exponent.
std::string python_text(float value);
std::string python_text(double value);

}  // namespace wflow::specs
