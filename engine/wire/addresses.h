// SPDX-License-Identifier: Apache-2.0
// By which names and addresses other hosts may reach this one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::engine::wire {

// The best first, at least one: $WFLOW_HOST alone where it is set; else the host's name where it stands for
// more than the loopback, the addresses of its networks, and its name again where that may mean more
// elsewhere than here.
std::vector<std::string> reachable_hosts();

// $WFLOW_HOST; nothing where it is not set.
std::optional<std::string> named_host();

// A network that this host is on.
struct Network {
  std::string interface;
  std::uint32_t address = 0, mask = 0;  // in host order
};
std::vector<Network> networks();

// Interfaces of containers and virtual machines: the same addresses are behind them on many hosts.
bool is_virtual(std::string_view interface);

// The order in which to try a coordinator's addresses ("tcp://host:port") from a host on these networks:
// those on a network of its own, then names and addresses that need a router, then those behind virtual
// interfaces. Else as they stand.
std::vector<std::string> nearest_first(std::vector<std::string> addresses,
                                       const std::vector<Network>& networks);

// $XDG_RUNTIME_DIR/wflow or /tmp/wflow-<uid>, made with mode 0700. Where another user has taken that name, or
// its mode is another one, a new folder /tmp/wflow-<uid>-XXXXXX. Nothing where none can be made.
std::optional<std::filesystem::path> socket_folder();

// A name that no other socket has, within the 107 bytes that a socket's name may have.
std::filesystem::path new_socket(const std::filesystem::path& folder, const std::string& token);

// Removes sockets to which nobody listens any more: of coordinators that were killed.
void remove_old_sockets(const std::filesystem::path& folder);

}  // namespace wflow::engine::wire
