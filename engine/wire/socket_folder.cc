// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/socket_folder.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/file.h"
#include "base/folders.h"
#include "base/text.h"

namespace wflow::engine::wire {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestFolder = 60;  // of the 107 bytes of a socket's name
constexpr std::size_t kTokenPart = 16;

// Made, or there already and the user's alone. Nobody can change either afterwards: /tmp is sticky.
bool make_own(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  return is_private_folder(folder) && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

// The process that its name tells of.
std::optional<pid_t> owner_of(const fs::path& socket) {
  const auto parts = text::split(socket.filename().string(), '.');
  const auto pid = parts.size() == 3 ? text::to_integer(parts[1]) : std::nullopt;
  return pid ? std::optional(static_cast<pid_t>(*pid)) : std::nullopt;
}

// A process of another PID namespace may listen though no process of this number is seen here.
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
