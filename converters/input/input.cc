// SPDX-License-Identifier: Apache-2.0
#include "converters/input/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

struct FormatEntry {
  Format format;
  Array (*read)(const fs::path&, const ConvertConfig&, Row);
  std::vector<std::string_view> suffixes;
};

const std::array<FormatEntry, 3>& formats() {
  static const std::array<FormatEntry, 3> kFormats = {
      FormatEntry{Format::hdf5, read_hdf5, {".h5", ".hdf5", ".he5", ".hdf", ".nc", ".nc4"}},
      FormatEntry{Format::npy, read_npy, {".npy"}},
      FormatEntry{Format::raw, read_raw, {".raw", ".bin", ".dat"}},
  };
  return kFormats;
}

}  // namespace

Format format_of(const fs::path& path, const ConvertConfig& config) {
  if (config.format != Format::automatic) return config.format;
  const std::string suffix = text::lower(path.extension().string());
  for (const FormatEntry& entry : formats()) {
    if (std::find(entry.suffixes.begin(), entry.suffixes.end(), suffix) != entry.suffixes.end())
      return entry.format;
  }
  throw Error(
      ExitCode::spec,
      fmt::format("the suffix of {} tells no format; write 'format: hdf5', 'npy' or 'raw'", path.string()));
}

Array read_array(const fs::path& path, const ConvertConfig& config, Row row) {
  const Format format = format_of(path, config);
  for (const FormatEntry& entry : formats()) {
    if (entry.format == format) return entry.read(path, config, row);
  }
  WFLOW_CHECK(false);
}

FileForm read_form(const fs::path& path, const ConvertConfig& config) {
  return format_of(path, config) == Format::npy ? npy_form(path) : hdf5_form(path, config);
}

std::vector<std::size_t> row_shape(const fs::path& path, const std::vector<std::size_t>& shape,
                                   std::uint64_t row) {
  if (shape.empty() || row >= shape[0]) {
    throw Error(ExitCode::data,
                fmt::format("{} has shape ({}), and no row {}", path.string(), fmt::join(shape, ", "), row));
  }
  std::vector<std::size_t> rest(shape.begin() + 1, shape.end());
  if (rest.empty()) rest.push_back(1);
  return rest;
}

InputFile::InputFile(fs::path path) : path_(std::move(path)), fd_(open_file(path_, O_RDONLY)) {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0)
    throw system_error(errno, fmt::format("cannot read {}", path_.string()));
  if (!S_ISREG(status.st_mode))
    throw Error(ExitCode::data, fmt::format("{} is not a regular file", path_.string()));
  size_ = static_cast<std::uint64_t>(status.st_size);
}

std::vector<std::uint8_t> InputFile::read(std::uint64_t offset, std::size_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) {
    throw Error(ExitCode::data, fmt::format("{} is cut short: it has {} bytes, {} were expected",
                                            path_.string(), size_, offset + bytes));
  }
  std::vector<std::uint8_t> result(bytes);
  if (read_at(fd_.get(), offset, result.data(), bytes, path_) < bytes)
    throw Error(ExitCode::data, fmt::format("{} became shorter while it was read", path_.string()));
  return result;
}

Array read_raw(const fs::path& path, const ConvertConfig& config, Row row) {
  if (config.shape.empty()) {
    throw Error(ExitCode::spec,
                fmt::format("{} is raw binary: the keys 'shape' and 'raw: {{dtype: ...}}' must say "
                            "what is in it",
                            path.string()));
  }
  const auto bytes = array_bytes(config.raw_dtype, config.shape);
  if (!bytes) throw Error(ExitCode::spec, "'shape' is of more than 4 GiB, which no sample may have");
  const InputFile file(path);
  const std::uint64_t start = config.offset + row.value_or(0) * *bytes;
  if (row ? file.size() < start + *bytes : file.size() != start + *bytes) {
    throw Error(ExitCode::data, fmt::format("{} has {} bytes, but ({}) {} after {} bytes makes {}",
                                            path.string(), file.size(), fmt::join(config.shape, ", "),
                                            dtype_name(config.raw_dtype), start, start + *bytes));
  }
  Array array{config.raw_dtype, config.shape, file.read(start, *bytes)};
  if (config.byte_order == ByteOrder::big) swap_byte_order(array.bytes, dtype_size(array.dtype));
  return array;
}

}  // namespace wflow::converters
