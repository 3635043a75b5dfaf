// SPDX-License-Identifier: Apache-2.0
#include "converters/readers/reader.h"

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
  std::unique_ptr<InputReader> (*open)(const fs::path&, const Selector&);
  std::vector<std::string_view> suffixes;
  std::vector<std::string_view> magic;  // first bytes
};

using namespace std::string_view_literals;

const std::vector<FormatEntry>& formats() {
  static const std::vector<FormatEntry> kFormats = {
      {Format::netcdf, open_netcdf, {".nc", ".nc3", ".nc4", ".cdf"}, {"CDF\x01"sv, "CDF\x02"sv, "CDF\x05"sv}},
      {Format::hdf5, open_hdf5_input, {".h5", ".hdf5", ".he5", ".hdf"}, {"\x89HDF\r\n\x1a\n"sv}},
      {Format::npy, open_npy, {".npy"}, {"\x93NUMPY"sv}},
      {Format::npz, open_npz, {".npz"}, {"PK\x03\x04"sv}},
      {Format::raw, open_raw, {".raw", ".bin", ".dat"}, {}},
      {Format::csv, open_table, {".csv", ".tsv", ".tab", ".txt"}, {}},
      {Format::text, open_text, {}, {}},
      {Format::json, open_json, {".json"}, {}},
      {Format::image, open_image, {".png", ".pgm"}, {"\x89PNG\r\n\x1a\n"sv, "P5"sv, "P2"sv}},
      {Format::gadget, open_gadget, {}, {}},
      {Format::tfrecord, open_tfrecord, {".tfrecord", ".tfrecords"}, {}},
  };
  return kFormats;
}

std::optional<Format> format_by_suffix(const fs::path& path) {
  const std::string suffix = text::lower(path.extension().string());
  for (const FormatEntry& entry : formats()) {
    if (std::find(entry.suffixes.begin(), entry.suffixes.end(), suffix) != entry.suffixes.end())
      return entry.format;
  }
  return std::nullopt;
}

std::optional<Format> format_by_content(const fs::path& path) {
  constexpr std::size_t kLongest = 8;
  const InputFile file(path);
  const auto start = file.read(0, std::min<std::uint64_t>(kLongest, file.size()));
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  for (const FormatEntry& entry : formats()) {
    for (const std::string_view magic : entry.magic) {
      if (text.starts_with(magic)) return entry.format;
    }
  }
  return std::nullopt;
}

// Columns make any text a table; in an HDF5 file they are members of a compound.
bool means_table(const Selector& selector, std::optional<Format> by_suffix) {
  return !selector.columns.empty() && by_suffix.value_or(Format::raw) == Format::raw;
}

}  // namespace

Format format_of(const fs::path& path, const Selector& selector) {
  if (selector.format != Format::automatic) return selector.format;
  const auto by_suffix = format_by_suffix(path);
  const bool table = means_table(selector, by_suffix);
  if (by_suffix && !table) return *by_suffix;
  if (const auto by_content = format_by_content(path)) return *by_content;
  if (table) return Format::csv;
  throw Error(
      ExitCode::spec,
      fmt::format(
          "neither the suffix nor the first bytes of {} tell its format; write 'format:' with hdf5, npy, "
          "npz, raw, netcdf, csv, text, json, gadget, image or tfrecord",
          path.string()));
}

std::unique_ptr<InputReader> open_input(const fs::path& path, const Selector& selector) {
  const Format format = format_of(path, selector);
  for (const FormatEntry& entry : formats()) {
    if (entry.format == format) return entry.open(path, selector);
  }
  WFLOW_CHECK(false);
}

InputArray read_input(InputReader& reader, const fs::path& path, const Selector& selector, Row row) {
  InputArray result{row ? reader.find_in_row(selector, row) : reader.find(selector), {}};
  const InputField& field = result.field;
  const Selection selection = resolve_selection(path, selector.slice, row, field.shape);
  Array& array = result.array;
  array.dtype = field.dtype;
  array.shape = selected_shape(selection);
  if (!field.components.empty()) array.shape.push_back(field.components.size());
  const auto bytes = array_bytes(array.dtype, array.shape);
  if (!bytes)
    throw Error(ExitCode::data,
                fmt::format("{} holds more than 4 GiB, which no sample may have", path.string()));
  array.bytes.resize(*bytes);
  if (*bytes > 0) reader.read(field, selection, array.bytes);
  // Removes the letters of axes that an index has removed.
  if (!field.axes.empty()) {
    std::string axes;
    for (std::size_t k = 0; k < selection.size(); ++k) {
      if (!selection[k].drop) axes += field.axes[k];
    }
    result.field.axes = axes;
  }
  return result;
}

Array read_array(const fs::path& path, const Selector& selector, Row row) {
  return read_input(*open_input(path, selector), path, selector, row).array;
}

InputField read_form(const fs::path& path, const Selector& selector) {
  return open_input(path, selector)->find(selector);
}

bool plausible_size(std::uint64_t claimed, std::uint64_t file_bytes) {
  constexpr std::uint64_t kMostRatio = 1032;
  constexpr std::uint64_t kSlack = 1 << 16;
  return file_bytes > UINT64_MAX / kMostRatio - kSlack || claimed <= file_bytes * kMostRatio + kSlack;
}

void no_such_field(const fs::path& path, const char* kind, const std::string& wanted,
                   const std::vector<std::string>& names) {
  const std::string there = names.empty() ? "it has none" : "it has " + text::join(names, ", ");
  throw Error(ExitCode::data, fmt::format("{} has no {} {}; {}{}", path.string(), kind, wanted, there,
                                          text::suggestion(wanted, names)));
}

void MemoryReader::read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) {
  const std::size_t width = dtype_size(field.dtype) * std::max<std::size_t>(1, field.components.size());
  take_selection(bytes_, field.shape, width, selection, values);
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
  check_size(offset, bytes);
  std::vector<std::uint8_t> result(bytes);
  read_into(offset, result);
  return result;
}

void InputFile::read_into(std::uint64_t offset, std::span<std::uint8_t> bytes) const {
  check_size(offset, bytes.size());
  if (read_at(fd_.get(), offset, bytes.data(), bytes.size(), path_) < bytes.size())
    throw Error(ExitCode::data, fmt::format("{} became shorter while it was read", path_.string()));
}

void InputFile::check_size(std::uint64_t offset, std::size_t bytes) const {
  if (offset <= size_ && bytes <= size_ - offset) return;
  throw Error(ExitCode::data, fmt::format("{} is cut short: it has {} bytes, {} were expected",
                                          path_.string(), size_, offset + bytes));
}

}  // namespace wflow::converters
