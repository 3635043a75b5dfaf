// SPDX-License-Identifier: Apache-2.0
// Studies from a list of commands, from a script of a Slurm array, and from studies of Merlin and Maestro.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wflow::cli {

struct ImportSource {
  std::string name;    // of the file, for the study's name and for errors
  std::string text;    // its content
  std::string folder;  // what a study's $(SPECROOT) must become: itself, or an absolute path
};

struct ImportedStudy {
  std::string kind;  // "commands", "Slurm array", "Merlin's study", "Maestro's study"
  std::string study;
  std::string table_name;  // the sample file that lies beside the study; empty: none
  std::string table;
};

// Throws Error{usage} with the file's name for what is neither.
ImportedStudy import_study(const ImportSource& source);

// The parts of import_study(), for files of either kind.
ImportedStudy import_commands(const ImportSource& source);
ImportedStudy import_sbatch_array(const ImportSource& source);
// `format`: "merlin", "maestro", or empty: by the file's content.
ImportedStudy import_their_study(const ImportSource& source, std::string_view format);
bool is_sbatch(std::string_view text);
bool is_study(std::string_view text);

// The lines of a text without the line ends of any system.
std::vector<std::string> import_lines(std::string_view text);
// A text as one scalar of YAML.
std::string import_scalar(std::string_view text);
// A name for a study: letters, digits, '_' and '-'.
std::string import_name(std::string_view file);

}  // namespace wflow::cli
