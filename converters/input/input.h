// SPDX-License-Identifier: Apache-2.0
// A file that a simulation left, read by ranges: what the readers of converters/readers/ share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/file.h"

namespace wflow::converters {

// Error{data} where it is missing or no regular file, Error{system} where the machine refuses.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return fd_.get(); }
  // Error{data} when the file has fewer bytes.
  std::vector<std::uint8_t> read(std::uint64_t offset, std::size_t bytes) const;
  void read_into(std::uint64_t offset, std::span<std::uint8_t> bytes) const;

 private:
  void check_size(std::uint64_t offset, std::size_t bytes) const;

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::uint64_t size_ = 0;
};

}  // namespace wflow::converters
