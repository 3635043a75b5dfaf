// SPDX-License-Identifier: Apache-2.0
// Names and addresses by which other hosts may reach this one, and the folder of Unix sockets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::engine::wire {

// The best first, at least one: $WFLOW_HOST alone if it is set; else the host's name if it resolves to more
// than the loopback, the addresses of its networks, and its name again if other hosts may resolve it better.
std::vector<std::string> reachable_hosts();

// $WFLOW_HOST; empty if it is not set.
std::optional<std::string> named_host();

// A network that this host is on.
struct Network {
  std::string interface;
  std::uint32_t address = 0, mask = 0;  // in host order
};
std::vector<Network> networks();

// True for interfaces of containers and virtual machines: many hosts have the same addresses there.
bool is_virtual(std::string_view interface);

// The order in which to try a coordinator's addresses ("tcp://host:port") from a host on these networks:
// those on a network of its own, then names and addresses that need a router, then those behind virtual
// interfaces. Keeps the order otherwise.
std::vector<std::string> nearest_first(std::vector<std::string> addresses,
                                       const std::vector<Network>& networks);

// ---- Unix sockets

// The folder of coordinators' Unix sockets, which only the user can enter, so that no other user can put a
// socket there, remove one or connect to one: $XDG_RUNTIME_DIR/wflow or /tmp/wflow-<uid>, made with mode
// 0700. If another user has taken that name, or its mode differs, a new folder /tmp/wflow-<uid>-XXXXXX. Empty
// if none can be made.
std::optional<std::filesystem::path> socket_folder();

// A name that no other socket has, within the 107 bytes that a socket's name may have.
std::filesystem::path new_socket(const std::filesystem::path& folder, const std::string& token);

// Removes sockets without a listener: those of killed coordinators.
void remove_old_sockets(const std::filesystem::path& folder);

}  // namespace wflow::engine::wire
