// SPDX-License-Identifier: Apache-2.0
#include "steps/outputs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/process.h"
#include "steps/kinds.h"
#include "steps/render.h"

namespace wflow::steps {

namespace {

bool looks_inside(const specs::DeclaredOutput& output) {
  return !output.dataset.empty() || !output.shape.empty() || output.finite;
}

}  // namespace

bool looks_into_outputs(const std::vector<specs::DeclaredOutput>& outputs) {
  return std::any_of(outputs.begin(), outputs.end(), looks_inside);
}

std::vector<OutputFile> output_files(const specs::TaskTemplate& t, const specs::SampleTable* samples,
                                     const Execution& execution) {
  std::vector<OutputFile> files;
  const std::string directory = working_directory(t, execution.element);
  const std::string path = t.sample_dependent && t.bundle == 0
                               ? specs::sample_path(execution.element, layout_of(t), t.level_max_dirs)
                               : "";
  const BundleRows rows{"", execution.element, execution.count};
  for (const specs::DeclaredOutput& output : t.outputs) {
    const std::string name =
        render(output.file, samples, execution.element, path, t.bundle > 0 ? &rows : nullptr);
    files.push_back({name.starts_with('/') ? name : directory + "/" + name, &output});
  }
  return files;
}

std::string missing_output(const std::vector<OutputFile>& files) {
  for (const OutputFile& file : files) {
    struct stat status {};
    if (::stat(file.path.c_str(), &status) != 0)
      return fmt::format("the declared output {} is not there ({})", file.path, std::strerror(errno));
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
      return fmt::format("the declared output {} is neither a file nor a directory", file.path);
    if (S_ISREG(status.st_mode) && status.st_size == 0)
      return fmt::format("the declared output {} is empty", file.path);
  }
  return {};
}

std::vector<std::string> check_command(const std::vector<OutputFile>& files) {
  nlohmann::json list = nlohmann::json::array();
  for (const OutputFile& file : files) {
    const specs::DeclaredOutput& declared = *file.declared;
    if (!looks_inside(declared)) continue;
    list.push_back({{"file", file.path},
                    {"dataset", declared.dataset},
                    {"shape", declared.shape},
                    {"finite", declared.finite}});
  }
  if (list.empty()) return {};
  return {sibling_program("wflow-convert"), "check", "--list",
          list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace wflow::steps
