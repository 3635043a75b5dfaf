// SPDX-License-Identifier: Apache-2.0
// One array of all samples of a bundle: <name>.npy of shape (samples, shape...), made whole and full of NaN
// by whichever process of the bundle comes first, then written row by row. A row that no sample has filled
// stays NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "plugin/wflow_plugin.h"

namespace wflow::plugin {

class RowFile {
 public:
  // In the working directory. Throws Error{data} when a file of that name holds something else,
  // Error{system}.
  RowFile(const wflow_array& array, std::uint64_t rows);

  std::size_t row_bytes() const { return row_bytes_; }
  const std::string& name() const { return name_; }
  // `count` neighbouring rows.
  void write(std::uint64_t first, std::uint64_t count, const std::uint8_t* bytes);
  // Fills `count` rows of memory with NaN.
  void clear(std::uint8_t* bytes, std::uint64_t count) const;
  // Whether a row holds neither NaN nor infinity.
  bool finite(const std::uint8_t* row) const;

 private:
  void create(const std::string& header, std::uint64_t rows);
  void check(const std::string& header, std::uint64_t rows) const;

  std::string name_;
  bool is_float_;
  std::size_t row_bytes_;
  std::uint64_t data_offset_;
  FileDescriptor fd_;
};

}  // namespace wflow::plugin
