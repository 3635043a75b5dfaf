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
  std::string descr;           // the type as it is written: "<f4"
  char kind = 0;               // 'i', 'u', 'f', 'U', 'S', ...
  std::size_t item_bytes = 0;  // of one value; 0 where the type is not a letter and a number
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::size_t> shape;
  std::size_t data_offset = 0;
};

inline constexpr std::size_t kMostNpyHeader = std::size_t{1} << 20;

// `start` is the file's first bytes, up to kMostNpyHeader of them. Throws Error{data} with the place in the
// file; `name` is the file's. Which types can be used is the caller's to say.
NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name);

// Reads as much as the header needs of an open file.
NpyHeader read_npy_header(int fd, const std::filesystem::path& file);

// The bytes of all values; nothing where they do not fit into 64 bits, as a damaged header may say.
std::optional<std::uint64_t> npy_bytes(const NpyHeader& header);

// The sentence for a file that is a whole one, but can't be used here.
[[noreturn]] void refuse_npy(const std::string& name, const std::string& why);

}  // namespace wflow
