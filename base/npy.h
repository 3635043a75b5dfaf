// SPDX-License-Identifier: Apache-2.0
// The header of NumPy's .npy files, versions 1 to 3 (numpy.lib.format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace wflow {

struct NpyHeader {
  std::string descr;           // the type as written: "<f4"
  char kind = 0;               // 'i', 'u', 'f', 'U', 'S', ...
  std::size_t item_bytes = 0;  // size of one value; 0 if the type is not a letter and a number
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::size_t> shape;
  std::size_t data_offset = 0;
};

inline constexpr std::size_t kMostNpyHeader = std::size_t{1} << 20;

// `start` is the file's first bytes, up to kMostNpyHeader of them. Throws Error{data} with the place in the
// file; `name` is the file's. The caller decides which types it supports.
NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name);

// Reads only the header of an open file.
NpyHeader read_npy_header(int fd, const std::filesystem::path& file);

// The size of all values in bytes; nothing if it does not fit into 64 bits, as with a damaged header.
std::optional<std::uint64_t> npy_bytes(const NpyHeader& header);

// Throws the error for a valid file that cannot be used here.
[[noreturn]] void refuse_npy(const std::string& name, const std::string& why);

}  // namespace wflow
