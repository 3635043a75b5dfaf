// SPDX-License-Identifier: Apache-2.0
#include "cli/import/import.h"

#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace wflow::cli {

std::vector<std::string> import_lines(std::string_view text) {
  std::vector<std::string> lines = text::split(text, '\n');
  for (std::string& line : lines)
    if (line.ends_with('\r')) line.pop_back();
  return lines;
}

std::string import_scalar(std::string_view text) {
  // A JSON string is also a YAML string.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string import_name(std::string_view file) {
  std::string name(file.substr(0, file.find('.')));
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-') c = '_';
  return name.empty() ? "study" : name;
}

ImportedStudy import_study(const ImportSource& source) {
  if (is_sbatch(source.text)) return import_sbatch_array(source);
  if (is_study(source.text)) return import_their_study(source, {});
  if (source.text.starts_with("#!"))
    throw Error(
        ExitCode::usage,
        fmt::format("{} is a script without #SBATCH lines; wflow init --from takes a script of a Slurm "
                    "array, or a file with one command a line",
                    source.name));
  return import_commands(source);
}

}  // namespace wflow::cli
