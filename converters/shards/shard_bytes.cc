// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/error.h"

namespace wflow::converters {

FileBytes::FileBytes(std::filesystem::path path, bool keep_open) : path_(std::move(path)) {
  if (keep_open) fd_ = open_file(path_, O_RDONLY);
}

void FileBytes::read(std::span<const ByteRange> ranges) const {
  const FileDescriptor opened = fd_ ? FileDescriptor() : open_file(path_, O_RDONLY);
  const int fd = fd_ ? fd_.get() : opened.get();
  for (const ByteRange& range : ranges) {
    if (read_at(fd, range.offset, range.to.data(), range.to.size(), path_) < range.to.size())
      throw Error(ExitCode::data, fmt::format("{} is shorter than when it was opened", path_.string()));
  }
}

}  // namespace wflow::converters
