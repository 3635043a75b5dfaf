// SPDX-License-Identifier: Apache-2.0
// The environment of tasks, in three layers: the worker's own, the array's, the element's (PreparedTask).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "specs/plan/template.h"

namespace wflow::steps {

// `environment` ("KEY=value" each) without the variables of a task that this process may itself be, and with
// the folder of wflow's programs first in PATH.
std::vector<std::string> worker_environment(const std::vector<std::string>& environment,
                                            const std::string& program_directory);

// That with the array's own variables, WFLOW_WORKSPACE, WFLOW_CAMPAIGN, the cores of a rank, at most those of
// the worker, as WFLOW_CORES and OMP_NUM_THREADS (kept where the user has set it), and the campaign's own
// programs first in PATH.
std::vector<std::string> array_environment(const std::vector<std::string>& worker,
                                           const specs::TaskTemplate& task_template, int worker_cores);

// "WFLOW_LEASE=...": all processes of a task on several nodes have it, and nothing else of the campaign.
std::string lease_variable(std::uint64_t lease);

// The calling process's environment as a list.
std::vector<std::string> own_environment();

}  // namespace wflow::steps
