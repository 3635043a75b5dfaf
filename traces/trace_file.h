// SPDX-License-Identifier: Apache-2.0
// The traces of a bundle of samples, as wflow-plugin-host leaves them (plugin/trace_host.h): NAME.index.npy
// has for each sample the number of its file NAME.<number>.rows, its first row there, and how many rows; NaN
// for a sample that has not run, or has failed. A row has kRowValues float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "traces/address_table.h"

namespace wflow::traces {

inline constexpr const char* kTraceName = "trace";
inline constexpr const char* kIndexEnding = ".index.npy";
inline constexpr std::size_t kIndexValues = 3;  // of a sample

std::string rows_file(const std::string& name, std::uint64_t number);
// The name for the process that began with this sample.
std::string address_file(std::uint64_t number);
// Merges the tables of all processes of a bundle, in its folder. Error{data} if they contradict each other.
AddressTable addresses_in(const std::filesystem::path& folder);

// Every function throws Error{data} if a file is missing, cut or something else.
class TraceFile {
 public:
  explicit TraceFile(std::filesystem::path index);

  std::size_t samples() const { return index_.size() / kIndexValues; }
  bool has(std::size_t sample) const;
  // Rows of a sample: Error{data} if it has no trace.
  std::size_t count(std::size_t sample) const { return entry(sample).count; }
  std::vector<double> rows(std::size_t sample);

 private:
  struct Entry {
    std::uint64_t file = 0;
    std::uint64_t first = 0;
    std::size_t count = 0;
  };
  Entry entry(std::size_t sample) const;

  std::filesystem::path path_;
  std::vector<double> index_;
  std::map<std::uint64_t, FileDescriptor> files_;
};

}  // namespace wflow::traces
