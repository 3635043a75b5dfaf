// SPDX-License-Identifier: Apache-2.0
// Reading what simulations write. A format is one function in the table of input.cc, not a class.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "converters/config.h"
#include "converters/input/array.h"

namespace wflow::converters {

// Error{data} with a sentence that names the file: a file that is missing, cut, or not what it should be, is
// the sample's fault. Error{system}: the machine's (permission, I/O error). Error{spec}: no format for that
// suffix.
// `row`: only that row of the file's slowest axis.
using Row = std::optional<std::uint64_t>;
Array read_array(const std::filesystem::path& path, const ConvertConfig& config, Row row = {});

// Type and shape of what is in the file; HDF5 and .npy alone.
struct FileForm {
  DType dtype = DType::float32;
  std::vector<std::size_t> shape;
};
FileForm read_form(const std::filesystem::path& path, const ConvertConfig& config);

// The format that read_array takes for this file.
Format format_of(const std::filesystem::path& path, const ConvertConfig& config);

// A regular file, read by ranges.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return fd_.get(); }
  // Error{data} when the file has fewer bytes.
  std::vector<std::uint8_t> read(std::uint64_t offset, std::size_t bytes) const;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  std::uint64_t size_ = 0;
};

Array read_hdf5(const std::filesystem::path& path, const ConvertConfig& config, Row row = {});
Array read_npy(const std::filesystem::path& path, const ConvertConfig& config, Row row = {});
Array read_raw(const std::filesystem::path& path, const ConvertConfig& config, Row row = {});
FileForm hdf5_form(const std::filesystem::path& path, const ConvertConfig& config);
FileForm npy_form(const std::filesystem::path& path);

// The shape of a row of an array of this shape; (1) where the array has one axis. Throws Error{data} where
// there is no such row.
std::vector<std::size_t> row_shape(const std::filesystem::path& path, const std::vector<std::size_t>& shape,
                                   std::uint64_t row);

}  // namespace wflow::converters
