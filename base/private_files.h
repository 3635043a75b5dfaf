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

// As make_directories(), but never writable by everybody, whatever the umask: require_trusted_folder() would refuse
// such a folder.
void make_own_directories(const std::filesystem::path& path);

// Error{system} with a sentence where `path` belongs to another user, or its mode lets others read, write or
// enter it. `danger`: what they could do then. The superuser may use what is another user's. A symbolic link
// counts as what it points to. Nothing happens where there is no such file: whoever opens it says so.
void require_private(const std::filesystem::path& path, std::string_view danger);

// Error{system} with a sentence where another user could replace `folder` or add files to it. As ssh does it, the
// folder and its parents (up to $HOME or the root) must belong to this user or to the superuser, and others must
// not have write access. Exceptions: groups that this user is in may write, and so may everybody where a parent
// has the sticky bit (/tmp). Folders inside one that $WFLOW_TRUST names (several: a:b) are not checked. `danger`:
// what the other user could do. A part of the path that is not there is not checked.
void require_trusted_folder(const std::filesystem::path& folder, std::string_view danger);

// Whether it is a folder for its user alone: false where it is not there, and for a symbolic link.
bool is_private_folder(const std::filesystem::path& folder);

}  // namespace wflow
