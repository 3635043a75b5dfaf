// SPDX-License-Identifier: Apache-2.0
// Why a task failed, by what it printed: whether its launcher (srun, mpirun) could not start its processes, and
// which lines say it.
#pragma once

#include <string>
#include <string_view>

namespace wflow::workers {

// The evidence is a line of what the task printed that begins with the launcher's own words for it, beside an
// exit code that is not 0: srun and mpirun have no exit code of their own for this. What a launcher says of a
// program that does not exist is the study's mistake, and does not count.
bool is_launch_failure(std::string_view output);

// Where wflow-train or wflow-convert has named an error: without their warnings before it, and without what
// mpirun says of the ranks' exit after it. Anything else stays as it is.
std::string without_warnings(std::string_view output);

}  // namespace wflow::workers
