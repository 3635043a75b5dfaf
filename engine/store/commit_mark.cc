// SPDX-License-Identifier: Apache-2.0
#include "engine/store/impl.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "base/error.h"

namespace wflow::engine::store {

namespace {

constexpr std::size_t kNumber = 20;  // digits of a 64-bit number
constexpr std::size_t kLine = kNumber + 1 + 32 + 1;

// "<number> <hash of the number>\n", always of the same length: overwritten in place.
std::string line_of(std::uint64_t commits) {
  const std::string number = fmt::format("{:020}", commits);
  return fmt::format("{} {}\n", number, hash_bytes(number));
}

// On a read-only file system it is compared only.
FileDescriptor open_mark(const std::filesystem::path& file) {
  try {
    return open_file(file, O_RDWR | O_CREAT | O_CLOEXEC);
  } catch (const Error& error) {
    if (error.error_number() != EROFS && error.error_number() != EACCES) throw;
    return FileDescriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  }
}

}  // namespace

CommitMark::CommitMark(const std::filesystem::path& campaign)
    : file_(open_mark(campaign / ".wflow" / "commits")) {}

std::optional<std::uint64_t> CommitMark::read() const {
  std::array<char, kLine> buffer{};
  if (::pread(file_.get(), buffer.data(), buffer.size(), 0) != static_cast<ssize_t>(buffer.size()))
    return std::nullopt;
  const std::string_view line(buffer.data(), buffer.size());
  std::uint64_t commits = 0;
  for (const char digit : line.substr(0, kNumber)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    commits = commits * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  if (line_of(commits) != line) return std::nullopt;
  return commits;
}

void CommitMark::write(std::uint64_t commits) noexcept {
  try {
    const std::string line = line_of(commits);
    [[maybe_unused]] const ssize_t put = ::pwrite(file_.get(), line.data(), line.size(), 0);
  } catch (...) {  // no memory
  }
}

}  // namespace wflow::engine::store
