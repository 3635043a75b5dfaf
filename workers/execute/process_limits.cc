// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/process_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>

#include "base/error.h"
#include "base/resources.h"

namespace wflow::workers {

namespace {

constexpr int kThreads = 2;        // of its connection
constexpr rlim_t kOpenFiles = 48;  // about twice what an agent has open before it runs anything

rlim_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string named(rlim_t value) {
  return value == RLIM_INFINITY ? "none" : std::to_string(value);
}

}  // namespace

std::string limit_behind(int error_number) {
  if (error_number == EMFILE)
    return fmt::format("; the limit on open files is {} (ulimit -n)", named(limit_of(RLIMIT_NOFILE)));
  if (error_number == EAGAIN)
    return fmt::format("; the limit on this user's processes is {} (ulimit -u)",
                       named(limit_of(RLIMIT_NPROC)));
  return {};
}

void check_limits() {
  const rlim_t files = limit_of(RLIMIT_NOFILE);
  if (files < kOpenFiles) {
    throw Error(ExitCode::system,
                fmt::format("a worker needs to open {} files and the limit is {}; raise it (ulimit -n {})",
                            kOpenFiles, files, 2 * kOpenFiles));
  }
  if (const int error = try_threads(kThreads); error != 0)
    throw Error(ExitCode::system, fmt::format("a worker cannot start its threads{}", limit_behind(error)));
}

}  // namespace wflow::workers
