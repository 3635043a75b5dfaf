// SPDX-License-Identifier: Apache-2.0
// The memory and the threads that this process may still take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace wflow {

// Bytes that this process can take before the kernel swaps or kills: the kernel's available memory, or what
// the limits of the process's control groups (versions 1 and 2) leave, whichever is less. Page cache counts
// as free: the kernel reclaims it. 0 if unknown.
std::int64_t free_memory(const std::filesystem::path& proc = "/proc",
                         const std::filesystem::path& groups = "/sys/fs/cgroup");

// The largest size in bytes that this process has had in memory.
std::int64_t peak_memory(const std::filesystem::path& proc = "/proc");

// Returns the free memory of this process's heap to the system.
void trim_heap();

// Tries to start `count` more threads: 0, or the errno of the failure. For libraries that end the process if
// they cannot start threads.
int try_threads(int count);

}  // namespace wflow
