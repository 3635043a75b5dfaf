// SPDX-License-Identifier: Apache-2.0
// The parts of HDF5's C interface that the .cc files share: handles, the lock, error texts. Include it only
// in .cc files and private headers, so that no public header shows HDF5.
#pragma once

#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "converters/dtype.h"

namespace wflow::converters {

// Must exist during calls of HDF5: holds the one lock that the library needs (it is not thread-safe in every
// distribution; if it is, it has such a lock itself), and prevents it from printing its error stack.
class Hdf5Section {
 public:
  Hdf5Section();
  Hdf5Section(const Hdf5Section&) = delete;
  Hdf5Section& operator=(const Hdf5Section&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
};

// Owns an id of HDF5; Close is the call that ends it.
template <herr_t (*Close)(hid_t)>
class Hdf5Id {
 public:
  Hdf5Id() = default;
  explicit Hdf5Id(hid_t id) : id_(id) {}
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Hdf5Id() { close(); }
  herr_t close() { return id_ >= 0 ? Close(std::exchange(id_, H5I_INVALID_HID)) : 0; }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using FileId = Hdf5Id<H5Fclose>;
using DatasetId = Hdf5Id<H5Dclose>;
using SpaceId = Hdf5Id<H5Sclose>;
using TypeId = Hdf5Id<H5Tclose>;
using PropertyId = Hdf5Id<H5Pclose>;
using GroupId = Hdf5Id<H5Gclose>;
using AttributeId = Hdf5Id<H5Aclose>;

// The innermost message of HDF5's error stack: the reason without the calls above it.
std::string hdf5_reason();

// Error{system} if the stack contains a failed system call (full disk, quota, ...), else Error{otherwise}.
[[noreturn]] void throw_hdf5(ExitCode otherwise, const std::string& what_and_where);

// Opens without file locks, which parallel file systems often refuse.
FileId open_hdf5(const std::filesystem::path& path, unsigned flags);

hid_t native_type(DType type);  // this machine's, in memory; must not be closed
hid_t stored_type(DType type);  // little-endian, in the file; must not be closed
// The type that holds such values in memory: float16 becomes float32, h5py's bool uint8. Nothing for
// compounds, strings and other non-numeric types.
std::optional<DType> dtype_of(hid_t type);

}  // namespace wflow::converters
