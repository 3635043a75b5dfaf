// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/folders.h"
#include "base/process.h"
#include "base/text.h"

namespace wflow::engine::wire {

namespace {

bool is_loopback(const sockaddr_in& address) {
  return (ntohl(address.sin_addr.s_addr) >> 24) == 127;
}

const sockaddr_in& as_ipv4(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in*>(address);
}

enum class Meaning { nothing, loopback, network };

// How this host resolves the name. Debian gives the host's own name to 127.0.1.1.
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

// The address in "tcp://10.1.2.3:4000"; empty for a name.
std::optional<std::uint32_t> number_of(const std::string& address) {
  constexpr std::string_view kScheme = "tcp://";
  if (!address.starts_with(kScheme)) return std::nullopt;
  const std::string host = address.substr(kScheme.size(), address.rfind(':') - kScheme.size());
  in_addr raw{};
  if (::inet_pton(AF_INET, host.c_str(), &raw) != 1) return std::nullopt;
  return ntohl(raw.s_addr);
}

}  // namespace

std::optional<std::string> named_host() {
  const char* named = std::getenv("WFLOW_HOST");
  return named == nullptr || *named == '\0' ? std::nullopt : std::optional<std::string>(named);
}

std::vector<std::string> reachable_hosts() {
  if (auto named = named_host()) return {*named};
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

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestFolder = 60;  // part of the 107 bytes of a socket's name
constexpr std::size_t kTokenPart = 16;

// Makes the folder, or accepts an existing one of this user alone. No other user can change it: /tmp is
// sticky.
bool make_own(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  return is_private_folder(folder) && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

// The process in its name.
std::optional<pid_t> owner_of(const fs::path& socket) {
  const auto parts = text::split(socket.filename().string(), '.');
  const auto pid = parts.size() == 3 ? text::to_integer(parts[1]) : std::nullopt;
  return pid ? std::optional(static_cast<pid_t>(*pid)) : std::nullopt;
}

// A process of another PID namespace may listen although no process here has this number.
bool is_refused(const fs::path& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = socket.string();
  if (name.size() >= sizeof address.sun_path) return false;
  name.copy(address.sun_path, name.size());
  const FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return false;
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

std::optional<fs::path> socket_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && std::string_view(runtime).size() < kLongestFolder) {
    if (fs::path folder = fs::path(runtime) / "wflow"; make_own(folder)) return folder;
  }
  std::string name = fmt::format("/tmp/wflow-{}", ::geteuid());
  if (make_own(name)) return name;
  name += "-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) return std::nullopt;
  return name;
}

fs::path new_socket(const fs::path& folder, const std::string& token) {
  std::uint32_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) random = 0;
  return folder / fmt::format("{}.{}.{:08x}", token.substr(0, kTokenPart), ::getpid(), random);
}

void remove_old_sockets(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto pid = owner_of(entry.path());
    if (!pid || !entry.is_socket(error)) continue;
    const bool dead = ::kill(*pid, 0) != 0 && errno == ESRCH;
    std::error_code ignored;
    if (dead && is_refused(entry.path())) fs::remove(entry.path(), ignored);
  }
}

}  // namespace wflow::engine::wire
