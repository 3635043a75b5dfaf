// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/process.h"

namespace wflow::engine::wire {

namespace {

bool is_loopback(const sockaddr_in& address) {
  return (ntohl(address.sin_addr.s_addr) >> 24) == 127;
}

const sockaddr_in& as_ipv4(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in*>(address);
}

enum class Meaning { nothing, loopback, network };

// What the name stands for on this host. Debian gives its own name to 127.0.1.1.
Meaning meaning_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return Meaning::nothing;
  Meaning meaning = Meaning::loopback;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (!is_loopback(as_ipv4(at->ai_addr))) meaning = Meaning::network;
  }
  ::freeaddrinfo(found);
  return meaning;
}

std::vector<std::string> network_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return addresses;
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_UP) == 0)
      continue;
    const sockaddr_in& address = as_ipv4(at->ifa_addr);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (is_loopback(address) || ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size()) == nullptr)
      continue;
    addresses.emplace_back(text.data());
  }
  ::freeifaddrs(found);
  return addresses;
}

}  // namespace

std::vector<std::string> reachable_hosts() {
  if (const char* named = std::getenv("WFLOW_HOST"); named != nullptr && *named != '\0') return {named};
  const std::string host = host_name();
  const Meaning meaning = meaning_of(host);
  std::vector<std::string> hosts;
  if (meaning == Meaning::network) hosts.push_back(host);
  for (std::string& address : network_addresses()) hosts.push_back(std::move(address));
  if (meaning == Meaning::loopback) hosts.push_back(host);
  if (hosts.empty()) hosts.emplace_back("127.0.0.1");
  return hosts;
}

}  // namespace wflow::engine::wire
