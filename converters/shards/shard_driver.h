// SPDX-License-Identifier: Apache-2.0
// A driver for HDF5 that writes the file of a shard, instead of HDF5's own driver for POSIX files. It gathers
// writes, and records the place of each chunk: HDF5 1.10 finds that only by a search through all chunks, for
// each of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "converters/input/hdf5_handle.h"

namespace wflow::converters {

// Selects the driver for files created with this access list. It cannot open existing files.
void use_shard_driver(hid_t access);

// The place where these bytes were written, if they were the last data that `file` received from any data
// set, unchanged. Call it once for each write. Nothing if HDF5 changed the bytes (a filter, a cache) or kept
// them: then ask HDF5 for the place.
std::optional<std::uint64_t> take_place_of_write(hid_t file, std::span<const std::uint8_t> bytes);

// A new file that mostly grows at its end. It holds its last bytes back until they fill an aligned MiB, and
// writes them in one call: for ordinary chunks that takes a third less CPU time, because the kernel then
// keeps the file in large pieces. Bytes far behind the end are written at once. All functions return false,
// with errno, if the system refuses.
class GatheredFile {
 public:
  static constexpr std::size_t kHeld = std::size_t{1} << 20;

  explicit GatheredFile(FileDescriptor fd);  // for an empty file, open for reading and writing
  bool write(std::uint64_t offset, std::span<const std::uint8_t> bytes);
  // Bytes that were never written are zero.
  bool read(std::uint64_t offset, std::span<std::uint8_t> bytes) const;
  bool flush();  // to the kernel, not to the disk
  bool resize(std::uint64_t size);
  std::uint64_t size() const { return size_; }

 private:
  std::uint64_t held_end() const { return begin_ + held_.size(); }
  bool append(std::span<const std::uint8_t> bytes);
  bool fill_to(std::uint64_t offset);
  bool hand_over();

  FileDescriptor fd_;
  std::uint64_t begin_ = 0;  // begin of the held bytes
  std::vector<std::uint8_t> held_;
  bool handed_over_ = true;  // the kernel has all held bytes
  std::uint64_t size_ = 0;
};

}  // namespace wflow::converters
