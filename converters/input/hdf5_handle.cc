// SPDX-License-Identifier: Apache-2.0
#include "converters/input/hdf5_handle.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/file.h"

namespace wflow::converters {

namespace {

// The lock for the global state of HDF5.
std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

herr_t keep_last(unsigned, const H5E_error2_t* error, void* reason) {
  if (error->desc != nullptr) *static_cast<std::string*>(reason) = error->desc;
  return 0;
}

// "... errno = 28, error message = 'No space left on device', ..." -> 28
int errno_of(std::string_view reason) {
  constexpr std::string_view kKey = "errno = ";
  const auto at = reason.find(kKey);
  return at == std::string_view::npos ? 0 : std::atoi(reason.substr(at + kKey.size()).data());
}

}  // namespace

Hdf5Section::Hdf5Section() : lock_(hdf5_mutex()) {
  // Without its exit handler HDF5 does not try once more to flush a file on a full disk, with error messages.
  static const bool once = [] {
    H5dont_atexit();
    return true;
  }();
  static_cast<void>(once);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5Eclear2(H5E_DEFAULT);
}

std::string hdf5_reason() {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_last, &reason);
  return reason;
}

void throw_hdf5(ExitCode otherwise, const std::string& what_and_where) {
  const std::string reason = hdf5_reason();
  if (const int number = errno_of(reason); number != 0) throw system_error(number, what_and_where);
  throw Error(otherwise, reason.empty() ? what_and_where : fmt::format("{}: {}", what_and_where, reason));
}

FileId open_hdf5(const std::filesystem::path& path, unsigned flags) {
  open_file(path, O_RDONLY);  // reports a missing file or permission clearly
  const PropertyId access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_file_locking(access.get(), false, true);
  // A file without a name, opened through its descriptor: the usual driver looks for the target of such a
  // link, which does not exist.
  if (path.native().starts_with("/proc/")) H5Pset_fapl_stdio(access.get());
  FileId file(H5Fopen(path.c_str(), flags, access.get()));
  if (!file) throw_hdf5(ExitCode::data, fmt::format("{} is not a readable HDF5 file", path.string()));
  return file;
}

namespace {

struct TypePair {
  hid_t native;
  hid_t stored;
};

// The ids are variables of the library that it sets when first used, so they can't be constants here.
TypePair types_of(DType type) {
  switch (type) {
    case DType::int8:
      return {H5T_NATIVE_INT8, H5T_STD_I8LE};
    case DType::uint8:
      return {H5T_NATIVE_UINT8, H5T_STD_U8LE};
    case DType::int16:
      return {H5T_NATIVE_INT16, H5T_STD_I16LE};
    case DType::uint16:
      return {H5T_NATIVE_UINT16, H5T_STD_U16LE};
    case DType::int32:
      return {H5T_NATIVE_INT32, H5T_STD_I32LE};
    case DType::uint32:
      return {H5T_NATIVE_UINT32, H5T_STD_U32LE};
    case DType::int64:
      return {H5T_NATIVE_INT64, H5T_STD_I64LE};
    case DType::uint64:
      return {H5T_NATIVE_UINT64, H5T_STD_U64LE};
    case DType::float32:
      return {H5T_NATIVE_FLOAT, H5T_IEEE_F32LE};
    case DType::float64:
      break;
  }
  return {H5T_NATIVE_DOUBLE, H5T_IEEE_F64LE};
}

}  // namespace

hid_t native_type(DType type) {
  return types_of(type).native;
}
hid_t stored_type(DType type) {
  return types_of(type).stored;
}

std::optional<DType> dtype_of(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_FLOAT && size == 2) return DType::float32;
  if (kind == H5T_ENUM && size == 1) return DType::uint8;
  if (kind == H5T_FLOAT) return parse_dtype(fmt::format("float{}", size * 8));
  if (kind != H5T_INTEGER) return std::nullopt;
  return parse_dtype(fmt::format("{}int{}", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", size * 8));
}

}  // namespace wflow::converters
