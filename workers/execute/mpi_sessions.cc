// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/mpi_sessions.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace wflow::workers {

namespace fs = std::filesystem;

void remove_mpi_sessions(std::span<const pid_t> pids) {
  const char* const given = std::getenv("TMPDIR");
  const fs::path base = given != nullptr && given[0] == '/' ? given : "/tmp";
  const std::string own = "." + std::to_string(::getuid());
  std::error_code error;
  for (auto at = fs::directory_iterator(base, fs::directory_options::skip_permission_denied, error);
       !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("ompi.") || !name.ends_with(own)) continue;
    std::error_code ignored;
    if (!fs::is_directory(at->symlink_status(ignored))) continue;
    for (const pid_t pid : pids) fs::remove_all(at->path() / ("pid." + std::to_string(pid)), ignored);
    fs::remove(at->path(), ignored);  // where it is empty
  }
}

}  // namespace wflow::workers
