// SPDX-License-Identifier: Apache-2.0
// By which names and addresses other hosts may reach this one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::engine::wire {

// The best first, at least one: $WFLOW_HOST alone where it is set; else the host's name where it stands for
// more than the loopback, the addresses of its networks, and its name again where that may mean more
// elsewhere than here.
std::vector<std::string> reachable_hosts();

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

}  // namespace wflow::engine::wire
