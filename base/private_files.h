// SPDX-License-Identifier: Apache-2.0
// Files and folders that are for their user alone, and the check that they still are, as ssh does it with its
// keys.
#pragma once

#include <filesystem>
#include <string_view>

namespace wflow {

// Makes the folder with mode 0700, its parents as make_directories() does. One that is there stays as it is.
// Error{system}.
void make_private_folder(const std::filesystem::path& folder);

// Error{system} with a sentence where `path` belongs to another user, or its mode lets others read, write or
// enter it. `danger`: what they could do then. The superuser may use what is another user's. A symbolic link
// counts as what it points to. Nothing happens where there is no such file: whoever opens it says so.
void require_private(const std::filesystem::path& path, std::string_view danger);

// Whether it is such a folder: false where it is not there, and for a symbolic link.
bool is_private_folder(const std::filesystem::path& folder);

}  // namespace wflow
