// SPDX-License-Identifier: Apache-2.0
// What of this machine this process may use.
#pragma once

#include <cstdint>
#include <vector>

namespace wflow::workers {

// The processors that this process may use: at least one.
std::vector<int> usable_cpus();
int usable_cores();

// The memory that this process and its children may use: the machine's, or less where a control group or
// Slurm says so.
std::int64_t usable_memory_bytes();

}  // namespace wflow::workers
