// SPDX-License-Identifier: Apache-2.0
#include "converters/input/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace wflow::converters {

namespace fs = std::filesystem;

InputFile::InputFile(fs::path path) : path_(std::move(path)), fd_(open_file(path_, O_RDONLY)) {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0)
    throw system_error(errno, fmt::format("cannot read {}", path_.string()));
  if (!S_ISREG(status.st_mode))
    throw Error(ExitCode::data, fmt::format("{} is not a regular file", path_.string()));
  size_ = static_cast<std::uint64_t>(status.st_size);
}

std::vector<std::uint8_t> InputFile::read(std::uint64_t offset, std::size_t bytes) const {
  check_size(offset, bytes);
  std::vector<std::uint8_t> result(bytes);
  read_into(offset, result);
  return result;
}

void InputFile::read_into(std::uint64_t offset, std::span<std::uint8_t> bytes) const {
  check_size(offset, bytes.size());
  if (read_at(fd_.get(), offset, bytes.data(), bytes.size(), path_) < bytes.size())
    throw Error(ExitCode::data, fmt::format("{} became shorter while it was read", path_.string()));
}

void InputFile::check_size(std::uint64_t offset, std::size_t bytes) const {
  if (offset <= size_ && bytes <= size_ - offset) return;
  throw Error(ExitCode::data, fmt::format("{} is cut short: it has {} bytes, {} were expected",
                                          path_.string(), size_, offset + bytes));
}

}  // namespace wflow::converters
