// SPDX-License-Identifier: Apache-2.0
#include "converters/input/array.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace wflow::converters {

std::optional<std::size_t> array_bytes(DType dtype, std::span<const std::size_t> shape) {
  std::size_t bytes = dtype_size(dtype);
  bool empty = false;
  for (const std::size_t length : shape) {
    if (length == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, length, &bytes)) {
      return std::nullopt;
    }
  }
  if (bytes > kMostSampleBytes) return std::nullopt;
  return empty ? 0 : bytes;
}

void swap_byte_order(std::span<std::uint8_t> bytes, std::size_t width) {
  for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + width));
  }
}

void to_c_order(Array& array) {
  const std::size_t rank = array.shape.size();
  const std::size_t width = dtype_size(array.dtype);
  if (rank < 2 || array.bytes.empty()) return;
  std::vector<std::size_t> stride(rank, width);  // of Fortran order
  for (std::size_t k = 1; k < rank; ++k) stride[k] = stride[k - 1] * array.shape[k - 1];
  std::vector<std::uint8_t> result(array.bytes.size());
  std::vector<std::size_t> index(rank, 0);
  std::size_t from = 0;
  for (std::size_t to = 0; to < result.size(); to += width) {
    std::memcpy(result.data() + to, array.bytes.data() + from, width);
    for (std::size_t k = rank; k-- > 0;) {  // the last index runs fastest
      from += stride[k];
      if (++index[k] < array.shape[k]) break;
      from -= stride[k] * array.shape[k];
      index[k] = 0;
    }
  }
  array.bytes = std::move(result);
}

void convert_values(Array& array, DType target) {
  if (array.dtype == target) return;
  const std::size_t count = array.bytes.size() / dtype_size(array.dtype);
  std::vector<std::uint8_t> result(count * dtype_size(target));
  with_type(array.dtype, [&](auto from) {
    with_type(target, [&](auto to) {
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(&from, array.bytes.data() + i * sizeof(from), sizeof(from));
        to = static_cast<decltype(to)>(from);
        std::memcpy(result.data() + i * sizeof(to), &to, sizeof(to));
      }
    });
  });
  array.bytes = std::move(result);
  array.dtype = target;
}

}  // namespace wflow::converters
