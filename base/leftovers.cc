// SPDX-License-Identifier: Apache-2.0
#include "base/leftovers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <system_error>

#include "base/file.h"
#include "base/text.h"

namespace wflow {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";  // .NAME.tmp-PID-NUMBER-HOST
constexpr std::chrono::hours kOldAge{24};

// A host's name may have blanks and be long.
std::string host_mark() {
  constexpr std::size_t kDigits = 8;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return hash_bytes(name.data()).substr(0, kDigits);
}

struct Temporary {
  std::string name;  // of the file that it was to become
  std::int64_t process = 0;
  std::string host;  // empty: of an earlier version
};

std::optional<Temporary> read_name(const std::string& file) {
  const std::size_t mark = file.rfind(kTemporaryMark);
  if (mark == std::string::npos || mark == 0 || !file.starts_with('.')) return std::nullopt;
  const auto parts = text::split(file.substr(mark + kTemporaryMark.size()), '-');
  const auto process = text::to_integer(parts.front());
  if (!process || *process <= 0) return std::nullopt;
  return Temporary{file.substr(1, mark - 1), *process, parts.size() > 2 ? parts[2] : std::string()};
}

bool lives(std::int64_t process) {
  return ::kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH;
}

bool is_old(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - time > kOldAge;
}

}  // namespace

std::string temporary_mark() {
  static std::atomic<unsigned> counter{0};
  static const std::string host = host_mark();
  return fmt::format("{}{}-{}-{}", kTemporaryMark, ::getpid(), counter.fetch_add(1), host);
}

void remove_left_files(const fs::path& directory, std::string_view name) {
  const std::string here = host_mark();
  std::error_code ignored;
  for (fs::directory_iterator at(directory.empty() ? fs::path(".") : directory, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    const auto file = read_name(at->path().filename().string());
    if (!file || (!name.empty() && file->name != name)) continue;
    std::error_code none;
    const bool left = file->host == here ? !lives(file->process) : is_old(at->path());
    if (left && at->is_regular_file(none)) fs::remove(at->path(), none);
  }
}

}  // namespace wflow
