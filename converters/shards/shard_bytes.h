// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a shard come from: its file, a copy on this node, or another process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/file.h"

namespace wflow::converters {

struct ByteRange {
  std::uint64_t offset = 0;
  std::span<std::uint8_t> to;
};

class ShardBytes {
 public:
  virtual ~ShardBytes() = default;
  // Fills all ranges. Thread-safe. Error{data} where the shard ends before one of them does.
  virtual void read(std::span<const ByteRange> ranges) const = 0;
};

class FileBytes final : public ShardBytes {
 public:
  // keep_open: hold a descriptor, which saves an open(2) a read.
  FileBytes(std::filesystem::path path, bool keep_open);
  // Of an opened file, which messages call `path`.
  FileBytes(std::filesystem::path path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  void read(std::span<const ByteRange> ranges) const override;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
};

}  // namespace wflow::converters
