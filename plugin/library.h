// SPDX-License-Identifier: Apache-2.0
// A simulator in a shared library, and the .npy files that take its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "plugin/wflow_plugin.h"

namespace wflow::plugin {

// In C a tag and a function may share a name; C++ needs another name for the tag.
using Description = struct ::wflow_plugin;

// Loads the library (it stays loaded) and asks `symbol` for its description. Throws Error{spec} with file and
// reason.
const Description& load_library(const std::string& path, const std::string& symbol);

// The version of plugins that end before trace().
inline constexpr std::uint32_t kPluginAbiWithoutTraces = 1;
// True for a simulator that takes its random draws from wflow.
inline bool is_traced(const Description& plugin) {
  return plugin.abi > kPluginAbiWithoutTraces && plugin.trace != nullptr;
}

inline std::span<const wflow_array> arrays_of(const Description& plugin) {
  return {plugin.arrays, plugin.array_count};
}

// The number of values in one sample's array, and the bytes of one value.
std::size_t values_of(const wflow_array& array);
std::size_t value_bytes(const wflow_array& array);

// One array of all samples of a bundle: <name>.npy of shape (samples, shape...). The first process of the
// bundle makes it whole and full of NaN; each process then writes its rows. A row that no sample has filled
// stays NaN.
class RowFile {
 public:
  // Opens or makes the file in the working directory. Throws Error{data} if a file of that name holds
  // something else, Error{system}.
  RowFile(const wflow_array& array, std::uint64_t rows);

  std::size_t row_bytes() const { return row_bytes_; }
  const std::string& name() const { return name_; }
  // Writes `count` neighbouring rows.
  void write(std::uint64_t first, std::uint64_t count, const std::uint8_t* bytes);
  // Fills `count` rows of memory with NaN.
  void clear(std::uint8_t* bytes, std::uint64_t count) const;
  // True if a row holds neither NaN nor infinity.
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
