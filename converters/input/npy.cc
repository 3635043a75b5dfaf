// SPDX-License-Identifier: Apache-2.0
#include "base/npy.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "base/error.h"
#include "converters/input/input.h"

namespace wflow::converters {

namespace {

NpyHeader header_of(const InputFile& file) {
  return read_npy_header(file.descriptor(), file.path());
}

DType dtype_of(const NpyHeader& header, const std::filesystem::path& path) {
  const std::string_view kind = header.kind == 'i'   ? "int"
                                : header.kind == 'u' ? "uint"
                                : header.kind == 'f' ? "float"
                                                     : "";
  const auto dtype = kind.empty() || header.item_bytes > 8
                         ? std::nullopt
                         : parse_dtype(fmt::format("{}{}", kind, header.item_bytes * 8));
  if (dtype) return *dtype;
  refuse_npy(
      path.string(),
      fmt::format("its values are of type '{}'; integers of 1 to 8 bytes and floats of 4 or 8 are read",
                  header.descr));
}

}  // namespace

FileForm npy_form(const std::filesystem::path& path) {
  const NpyHeader header = header_of(InputFile(path));
  return {dtype_of(header, path), header.shape};
}

Array read_npy(const std::filesystem::path& path, const ConvertConfig&, Row row) {
  const InputFile file(path);
  const NpyHeader header = header_of(file);
  const DType dtype = dtype_of(header, path);
  if (row && header.fortran_order) {
    throw Error(ExitCode::data,
                fmt::format("{} is in Fortran order; rows are read of files in C order", path.string()));
  }
  const std::vector<std::size_t> shape = row ? row_shape(path, header.shape, *row) : header.shape;
  const auto bytes = array_bytes(dtype, shape);
  if (!bytes)
    throw Error(ExitCode::data,
                fmt::format("{} holds more than 4 GiB, which no sample may have", path.string()));
  Array array{dtype, shape, file.read(header.data_offset + row.value_or(0) * *bytes, *bytes)};
  if (header.big_endian) swap_byte_order(array.bytes, dtype_size(array.dtype));
  if (header.fortran_order) to_c_order(array);
  return array;
}

}  // namespace wflow::converters
