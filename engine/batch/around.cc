// SPDX-License-Identifier: Apache-2.0
#include "engine/batch/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/process.h"
#include "base/text.h"
#include "engine/batch/adapters.h"

namespace wflow::engine::batch {

std::optional<AllocationAround> allocation_around(const Variable& variable, bool has_srun) {
  const auto value = [&](const char* name) {
    const char* text = variable(name);
    return std::string(text == nullptr ? "" : text);
  };
  AllocationAround around;
  around.id = value("SLURM_JOB_ID");
  if (around.id.empty() || !value("FLUX_URI").empty()) return std::nullopt;
  around.scheduler = "slurm";
  around.nodes = expand_host_list(value("SLURM_JOB_NODELIST"));
  // `salloc` runs its command on the machine where the user typed it, which need not be one of the nodes.
  const bool on_its_node = !value("SLURMD_NODENAME").empty();
  if (around.nodes.empty() || (around.nodes.size() == 1 && on_its_node)) return std::nullopt;
  const std::string cores = value("SLURM_JOB_CPUS_PER_NODE");  // "8(x2),4"
  around.cores = static_cast<int>(text::to_integer(cores.substr(0, cores.find_first_of("(,"))).value_or(0));
  around.starts_workers = has_srun;
  around.launcher = text::split(agents_launcher(static_cast<int>(around.nodes.size())), ' ');
  return around;
}

std::optional<AllocationAround> allocation_around() {
  return allocation_around([](const char* name) { return std::getenv(name); },
                           find_program("srun").has_value());
}

std::vector<std::string> environment_for_launcher(std::vector<std::string> variables) {
  constexpr std::array<std::string_view, 6> kNames = {"SLURM_EXPORT_ENV",    "SRUN_CPUS_PER_TASK",
                                                      "SLURM_CPUS_PER_TASK", "SLURM_NTASKS_PER_NODE",
                                                      "SLURM_DISTRIBUTION",  "SLURM_NTASKS"};
  constexpr std::array<std::string_view, 2> kPrefixes = {"SLURM_CPU_BIND", "SLURM_MEM_BIND"};
  std::erase_if(variables, [&](const std::string& variable) {
    const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
    return std::ranges::find(kNames, name) != kNames.end() ||
           std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
  });
  return variables;
}

}  // namespace wflow::engine::batch
