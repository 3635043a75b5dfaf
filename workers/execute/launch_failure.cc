// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/launch_failure.h"

#include <algorithm>
#include <array>

namespace wflow::workers {

namespace {

// A line that begins and goes on so.
struct Words {
  std::string_view begin, then;
};

constexpr std::array<Words, 9> kWords = {{
    {"srun: error: Unable to create step for job ", ""},
    {"srun: error: Unable to confirm allocation for job ", ""},
    {"srun: error: Task launch for ", " failed on node "},
    {"srun: error: task ", " launch failed: "},
    {"There are not enough slots available in the system to satisfy the ", ""},  // Open MPI
    {"ORTE was unable to reliably start one or more daemons.", ""},              // Open MPI 4
    {"PRTE was unable to reliably start one or more daemons.", ""},              // Open MPI 5
    {"An ORTE daemon has unexpectedly failed after launch and before", ""},
    {"A daemon (pid ", " died unexpectedly with status "},
}};

bool says_so(std::string_view line) {
  return std::any_of(kWords.begin(), kWords.end(), [line](const Words& words) {
    return line.starts_with(words.begin) && line.substr(words.begin.size()).find(words.then) != line.npos;
  });
}

}  // namespace

std::string without_warnings(std::string_view output) {
  constexpr std::string_view kWarning = "warning: ";
  constexpr std::string_view kMpirun = "-------";
  std::string kept;
  std::string after;  // the last error
  bool has_error = false;
  for (std::string_view rest = output; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    std::string_view words;
    for (const std::string_view program : {"wflow-train: ", "wflow-convert: "})
      if (line.starts_with(program)) words = line.substr(program.size());
    if (words.starts_with(kWarning)) continue;
    after += line;
    if (words.empty()) continue;
    has_error = true;
    kept += after;
    after.clear();
  }
  if (!has_error) return std::string(output);
  return kept + after.substr(0, after.starts_with(kMpirun) ? 0 : after.find("\n-------"));
}

bool is_launch_failure(std::string_view output) {
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    if (says_so(output.substr(0, end))) return true;
    output.remove_prefix(std::min(end + 1, output.size()));
  }
  return false;
}

}  // namespace wflow::workers
