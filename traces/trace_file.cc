// SPDX-License-Identifier: Apache-2.0
#include "traces/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/npy.h"

namespace wflow::traces {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAddressBeginning = "addresses.";

std::vector<double> read_index(const fs::path& path) {
  const std::string bytes = read_file(path);
  const std::span<const std::uint8_t> raw(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const NpyHeader header = parse_npy_header(raw.first(std::min(raw.size(), kMostNpyHeader)), path.string());
  const auto size = npy_bytes(header);
  const bool is_index = header.kind == 'f' && header.item_bytes == sizeof(double) && !header.big_endian &&
                        !header.fortran_order && header.shape.size() == 2 && header.shape[1] == kIndexValues;
  if (!is_index)
    throw Error(
        ExitCode::data,
        fmt::format("{} is no index of traces: it is to have three float64 for each sample", path.string()));
  if (!size || *size > bytes.size() - header.data_offset)
    throw Error(ExitCode::data, fmt::format("{} is cut short", path.string()));
  std::vector<double> values(*size / sizeof(double));
  std::memcpy(values.data(), bytes.data() + header.data_offset, *size);
  return values;
}

}  // namespace

std::string rows_file(const std::string& name, std::uint64_t number) {
  return fmt::format("{}.{}.rows", name, number);
}

std::string address_file(std::uint64_t number) {
  return fmt::format("{}{}.json", kAddressBeginning, number);
}

AddressTable addresses_in(const fs::path& folder) {
  AddressTable all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kAddressBeginning) && name.ends_with(".json"))
      all.merge(read_address_table(entry.path()));
  }
  return all;
}

TraceFile::TraceFile(fs::path index) : path_(std::move(index)), index_(read_index(path_)) {}

bool TraceFile::has(std::size_t sample) const {
  return sample < samples() && !std::isnan(index_[sample * kIndexValues]);
}

TraceFile::Entry TraceFile::entry(std::size_t sample) const {
  if (sample >= samples())
    throw Error(ExitCode::data,
                fmt::format("{} has {} samples, and none of number {}", path_.string(), samples(), sample));
  const auto values = std::span(index_).subspan(sample * kIndexValues, kIndexValues);
  for (const double value : values)
    if (!(value >= 0 && value < 0x1p53))
      throw Error(ExitCode::data,
                  fmt::format("{} has no trace of sample {} of its bundle: it has not run, or has failed",
                              path_.string(), sample));
  return {static_cast<std::uint64_t>(values[0]), static_cast<std::uint64_t>(values[1]),
          static_cast<std::size_t>(values[2])};
}

std::vector<double> TraceFile::rows(std::size_t sample) {
  const Entry place = entry(sample);
  std::string name = path_.filename().string();
  name.resize(name.size() - std::string_view(kIndexEnding).size());
  const fs::path path = path_.parent_path() / rows_file(name, place.file);
  FileDescriptor& file = files_[place.file];
  if (!file) file = open_file(path, O_RDONLY | O_CLOEXEC);
  std::vector<double> values(place.count * kRowValues);
  const std::size_t bytes = values.size() * sizeof(double);
  if (read_at(file.get(), place.first * sizeof(Row), values.data(), bytes, path) != bytes)
    throw Error(ExitCode::data, fmt::format("{} is cut short", path.string()));
  return values;
}

}  // namespace wflow::traces
