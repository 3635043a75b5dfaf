// SPDX-License-Identifier: Apache-2.0
// Where coordinators have their Unix sockets: a folder that only the user can enter, so that nobody else can
// put a socket there, remove one or connect to one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace wflow::engine::wire {

// $XDG_RUNTIME_DIR/wflow or /tmp/wflow-<uid>, made with mode 0700. Where another user has taken that name, or
// its mode is another one, a new folder /tmp/wflow-<uid>-XXXXXX. Nothing where none can be made.
std::optional<std::filesystem::path> socket_folder();

// A name that no other socket has, within the 107 bytes that a socket's name may have.
std::filesystem::path new_socket(const std::filesystem::path& folder, const std::string& token);

// Removes sockets to which nobody listens any more: of coordinators that were killed.
void remove_old_sockets(const std::filesystem::path& folder);

}  // namespace wflow::engine::wire
