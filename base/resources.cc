// SPDX-License-Identifier: Apache-2.0
#include "base/resources.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <latch>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace wflow {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number after `name` in a file of names and numbers; with an empty `name`, the number of a file that
// holds only a number.
std::optional<std::int64_t> number_in(const fs::path& path, const std::string& name = {}) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (!name.empty() && word != name) continue;
    if (!name.empty() && !(file >> word)) break;
    try {
      return std::stoll(word);
    } catch (const std::exception&) {
      return std::nullopt;  // "max"
    }
  }
  return std::nullopt;
}

std::int64_t left_of(std::optional<std::int64_t> limit, std::optional<std::int64_t> used,
                     std::optional<std::int64_t> cache) {
  if (!limit || !used) return kNoLimit;
  return std::max<std::int64_t>(0, *limit - *used + std::min(*used, cache.value_or(0)));
}

// The least of the group and all groups above it, up to the mount.
std::int64_t left_in(const fs::path& mount, const std::string& group, bool second) {
  std::int64_t least = kNoLimit;
  for (fs::path path = fs::path(group).relative_path();; path = path.parent_path()) {
    const fs::path folder = mount / path;
    least = std::min(least,
                     second ? left_of(number_in(folder / "memory.max"), number_in(folder / "memory.current"),
                                      number_in(folder / "memory.stat", "inactive_file"))
                            : left_of(number_in(folder / "memory.limit_in_bytes"),
                                      number_in(folder / "memory.usage_in_bytes"),
                                      number_in(folder / "memory.stat", "total_inactive_file")));
    if (path.empty()) return least;
  }
}

}  // namespace

std::int64_t free_memory(const fs::path& proc, const fs::path& groups) {
  const auto available = number_in(proc / "meminfo", "MemAvailable:");
  std::int64_t least = available ? *available * 1024 : kNoLimit;
  std::ifstream file(proc / "self" / "cgroup");  // lines of number:controllers:path
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, left_in(groups, group, true));
    if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, left_in(groups / "memory", group, false));
  }
  return least == kNoLimit ? 0 : least;
}

// Not getrusage(): a process inherits its maximum from the program that started it.
std::int64_t peak_memory(const fs::path& proc) {
  return number_in(proc / "self" / "status", "VmHWM:").value_or(0) * 1024;
}

void trim_heap() {
  ::malloc_trim(0);
}

int try_threads(int count) {
  std::latch all(count);  // a thread that has ended no longer counts against the limit
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&all] { all.arrive_and_wait(); });
  } catch (const std::system_error& error) {
    all.count_down(count - static_cast<std::ptrdiff_t>(threads.size()));
    return error.code().value();
  }
  return 0;
}

}  // namespace wflow
