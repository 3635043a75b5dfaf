// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

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

std::string text_of(std::uint32_t address) {
  in_addr raw{htonl(address)};
  std::array<char, INET_ADDRSTRLEN> text{};
  return ::inet_ntop(AF_INET, &raw, text.data(), text.size()) == nullptr ? "" : text.data();
}

// Of "tcp://10.1.2.3:4000"; nothing for a name.
std::optional<std::uint32_t> number_of(const std::string& address) {
  constexpr std::string_view kScheme = "tcp://";
  if (!address.starts_with(kScheme)) return std::nullopt;
  const std::string host = address.substr(kScheme.size(), address.rfind(':') - kScheme.size());
  in_addr raw{};
  if (::inet_pton(AF_INET, host.c_str(), &raw) != 1) return std::nullopt;
  return ntohl(raw.s_addr);
}

}  // namespace

std::vector<std::string> reachable_hosts() {
  if (const char* named = std::getenv("WFLOW_HOST"); named != nullptr && *named != '\0') return {named};
  const std::string host = host_name();
  const Meaning meaning = meaning_of(host);
  std::vector<std::string> hosts;
  if (meaning == Meaning::network) hosts.push_back(host);
  for (const bool of_virtual : {false, true}) {
    for (const Network& network : networks()) {
      if (is_virtual(network.interface) == of_virtual) hosts.push_back(text_of(network.address));
    }
  }
  if (meaning == Meaning::loopback) hosts.push_back(host);
  if (hosts.empty()) hosts.emplace_back("127.0.0.1");
  return hosts;
}

std::vector<Network> networks() {
  std::vector<Network> list;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return list;
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_UP) == 0)
      continue;
    const sockaddr_in& address = as_ipv4(at->ifa_addr);
    if (is_loopback(address) || at->ifa_netmask == nullptr) continue;
    list.push_back(
        {at->ifa_name, ntohl(address.sin_addr.s_addr), ntohl(as_ipv4(at->ifa_netmask).sin_addr.s_addr)});
  }
  ::freeifaddrs(found);
  return list;
}

bool is_virtual(std::string_view interface) {
  constexpr std::array<std::string_view, 8> kPrefixes = {"docker", "podman", "br-", "virbr",
                                                         "vmnet",  "cni",    "lxc", "flannel"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

std::vector<std::string> nearest_first(std::vector<std::string> addresses,
                                       const std::vector<Network>& networks) {
  const auto rank = [&](const std::string& address) {
    const auto number = number_of(address);
    if (!number) return 1;
    int best = 1;
    for (const Network& network : networks) {
      if (((*number ^ network.address) & network.mask) != 0) continue;
      if (is_virtual(network.interface)) return 2;
      best = 0;
    }
    return best;
  };
  std::stable_sort(addresses.begin(), addresses.end(),
                   [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
  return addresses;
}

}  // namespace wflow::engine::wire
