// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/processes.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

namespace wflow::workers {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSessionPrefix = "pid.";
constexpr int kAnswer_ms = 1000;

// The first line of contact.txt: "JOB.0;tcp://ADDRESS[,ADDRESS...]:PORT[;tcp6://...]". Open MPI 4 writes it.
struct Contact {
  std::optional<std::uint32_t> job;
  std::string uri;
};

Contact contact_of(const fs::path& session) {
  std::ifstream file(session / "contact.txt");
  Contact contact;
  std::getline(file, contact.uri);
  const auto job = text::to_integer(contact.uri.substr(0, contact.uri.find('.')));
  if (job && *job >= 0 && *job <= UINT32_MAX) contact.job = static_cast<std::uint32_t>(*job);
  return contact;
}

bool connects(const std::string& address, std::int64_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return false;
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return false;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return true;
  if (errno != EINPROGRESS) return false;
  // An own address accepts or refuses at once, or a little later on a busy machine. Silence may be a
  // container's.
  pollfd answer{socket.get(), POLLOUT, 0};
  if (::poll(&answer, 1, kAnswer_ms) != 1) return true;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error == 0;
}

bool listens(const Contact& contact) {
  constexpr std::string_view kTcp = ";tcp://";
  const std::size_t begin = contact.uri.find(kTcp);
  if (begin == std::string::npos) return false;
  const std::string place = contact.uri.substr(begin + kTcp.size());
  const std::string listed = place.substr(0, place.find(';'));
  const std::size_t colon = listed.rfind(':');
  if (colon == std::string::npos) return false;
  const auto port = text::to_integer(listed.substr(colon + 1));
  if (!port || *port <= 0 || *port > UINT16_MAX) return false;
  const std::string addresses = listed.substr(0, colon);
  for (std::size_t at = 0; at <= addresses.size();) {
    const std::size_t end = std::min(addresses.find(',', at), addresses.size());
    if (connects(addresses.substr(at, end - at), *port)) return true;
    at = end + 1;
  }
  return false;
}

// The segments of the job's parts: a number's upper half is the mpirun's, the lower one counts what it
// started.
void remove_segments(std::uint32_t job) {
  std::error_code error;
  for (auto at = fs::directory_iterator("/dev/shm", error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("vader_segment.")) continue;
    const std::size_t rank = name.rfind('.');
    const std::size_t begin = name.rfind('.', rank - 1) + 1;
    char* end = nullptr;
    const unsigned long of = std::strtoul(name.c_str() + begin, &end, 16);
    struct stat about {};
    if (end != name.c_str() + rank || of >> 16 != job >> 16 || ::lstat(at->path().c_str(), &about) != 0 ||
        about.st_uid != ::getuid())
      continue;
    ::unlink(at->path().c_str());
  }
}

// A zombie has gone, too: it may wait long for a parent that reaps it.
bool has_gone(pid_t pid) {
  try {
    const ProcessIdentity process = identify(pid);
    return !process.known() || ProcessHandle(process).ended();
  } catch (const Error&) {
    return false;  // unknown
  }
}

void remove_session(const fs::path& session) {
  const Contact contact = contact_of(session);
  if (contact.job) remove_segments(*contact.job);
  std::error_code ignored;
  fs::remove_all(session, ignored);
}

// Calls `look` for every folder of this user's sessions, and removes the folder where it is empty then.
void for_folders(const std::function<void(const fs::path&)>& look) {
  const char* const given = std::getenv("TMPDIR");
  const fs::path base = given != nullptr && given[0] == '/' ? given : "/tmp";
  const std::string own = "." + std::to_string(::getuid());
  std::error_code error;
  for (auto at = fs::directory_iterator(base, fs::directory_options::skip_permission_denied, error);
       !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("ompi.") || !name.ends_with(own)) continue;
    struct stat about {};
    if (::lstat(at->path().c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != ::getuid())
      continue;
    look(at->path());
    std::error_code ignored;
    fs::remove(at->path(), ignored);
  }
}

}  // namespace

void remove_mpi_sessions(std::span<const pid_t> pids) {
  for_folders([&](const fs::path& folder) {
    std::error_code ignored;
    for (const pid_t pid : pids) {
      const fs::path session = folder / fmt::format("{}{}", kSessionPrefix, pid);
      if (fs::is_directory(fs::symlink_status(session, ignored))) remove_session(session);
    }
  });
}

void remove_left_mpi_sessions() {
  // Open MPI leaves a host's domain out.
  const std::string host = host_name();
  const std::string folder_name = fmt::format("ompi.{}.{}", host.substr(0, host.find('.')), ::getuid());
  for_folders([&](const fs::path& folder) {
    if (folder.filename() != folder_name && folder.filename() != fmt::format("ompi.{}.{}", host, ::getuid()))
      return;
    std::error_code error;
    std::vector<fs::path> left;
    for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator();
         at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (!name.starts_with(kSessionPrefix)) continue;
      const auto pid = text::to_integer(name.substr(kSessionPrefix.size()));
      if (pid && *pid > 0 && has_gone(static_cast<pid_t>(*pid)) && !listens(contact_of(at->path())))
        left.push_back(at->path());
    }
    for (const fs::path& session : left) remove_session(session);
  });
}

}  // namespace wflow::workers
