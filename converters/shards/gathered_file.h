// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/file.h"

namespace wflow::converters {

// A new file that mostly grows at its end. Its last bytes are held back until they fill a MiB that begins at
// a multiple of one, and go to the kernel in one call: of ordinary chunks that takes a third less CPU time,
// as the kernel then keeps the file in large pieces. What is written further ahead goes to the kernel at
// once. All return false, with errno, where the system refuses.
class GatheredFile {
 public:
  static constexpr std::size_t kHeld = std::size_t{1} << 20;

  explicit GatheredFile(FileDescriptor fd);  // of an empty file, to be read and written
  bool write(std::uint64_t offset, std::span<const std::uint8_t> bytes);
  // What was never written is zero.
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
  std::uint64_t begin_ = 0;  // of what is held
  std::vector<std::uint8_t> held_;
  bool handed_over_ = true;  // the kernel has all that is held
  std::uint64_t size_ = 0;
};

}  // namespace wflow::converters
