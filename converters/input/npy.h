// SPDX-License-Identifier: Apache-2.0
// The header of NumPy's .npy files, versions 1 to 3 (numpy.lib.format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "converters/dtype.h"

namespace wflow::converters {

struct NpyHeader {
  DType dtype = DType::float32;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::size_t> shape;
  std::size_t data_offset = 0;
};

inline constexpr std::size_t kMostNpyHeader = std::size_t{1} << 20;

// `start` is the file's first bytes, up to kMostNpyHeader of them. Throws Error{data}; `name` is the file's.
NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name);

}  // namespace wflow::converters
