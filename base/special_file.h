// SPDX-License-Identifier: Apache-2.0
// Devices, pipes and /dev/stdout: what a user may name as an output file, and what no rename may replace.
#pragma once

#include <filesystem>
#include <string_view>

namespace wflow {

// Whether the path names a device, a pipe or a socket, or lies in /dev or /proc (/dev/stdout is a link to whatever
// standard output is connected to). False where there is nothing.
bool is_special_file(const std::filesystem::path& path);

// Writes into it, as `>` of a shell does. What is standard output is written through its descriptor.
void write_special_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace wflow
