// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

namespace wflow {

// Bytes that this process could take without anything being swapped or killed: what the kernel calls
// available, and what the limits of the process's control groups (versions 1 and 2) leave, whichever is less.
// Page cache counts as free: the kernel gives it back. 0 where nothing is known.
std::int64_t free_memory(const std::filesystem::path& proc = "/proc",
                         const std::filesystem::path& groups = "/sys/fs/cgroup");

// The most bytes that this process has had in memory at a time.
std::int64_t peak_memory(const std::filesystem::path& proc = "/proc");

}  // namespace wflow
