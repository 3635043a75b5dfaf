// SPDX-License-Identifier: Apache-2.0
// Temporary files of write_file_durably() and DurableFile whose process was killed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace wflow {

// Stands behind a file's name in that of its temporary: the process, and its host.
std::string temporary_mark();

// Removes them from this directory: of one file, or (`name` empty) of all. Those of processes that live stay. Of
// another host's process nothing is known: its file goes when it is a day old.
void remove_left_files(const std::filesystem::path& directory, std::string_view name = {});

}  // namespace wflow
