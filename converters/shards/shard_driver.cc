// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_driver.h"

#include <fcntl.h>
#include <fmt/format.h>
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>  // from HDF5 1.13 on
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "converters/shards/gathered_file.h"

namespace wflow::converters {

namespace {

struct DriverFile : H5FD_t {
  GatheredFile file;
  haddr_t end_of_space = 0;
  const void* last_bytes = nullptr;
  std::size_t last_size = 0;
  haddr_t last_place = HADDR_UNDEF;

  explicit DriverFile(FileDescriptor fd) : H5FD_t{}, file(std::move(fd)) {}
};

DriverFile& of(H5FD_t* file) {
  return *static_cast<DriverFile*>(file);
}
const DriverFile& of(const H5FD_t* file) {
  return *static_cast<const DriverFile*>(file);
}

// In the words of HDF5's own driver, which throw_hdf5 understands.
herr_t refused(const char* what) {
  const int number = errno;
  const std::string text =
      fmt::format("{}: errno = {}, error message = '{}'", what, number, std::strerror(number));
  H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_VFL, H5E_WRITEERROR, "%s",
           text.c_str());
  return -1;
}

H5FD_t* open_new(const char* name, unsigned, hid_t, haddr_t) {
  const int fd = ::open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    refused("unable to create file");
    return nullptr;
  }
  try {
    return std::make_unique<DriverFile>(FileDescriptor(fd)).release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

herr_t close_file(H5FD_t* file) {
  const std::unique_ptr<DriverFile> closed(&of(file));
  return closed->file.flush() ? 0 : refused("file write failed");
}

// Those of HDF5's own driver: the bytes of the file are the same.
herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t end_of_space(const H5FD_t* file, H5FD_mem_t) {
  return of(file).end_of_space;
}
herr_t set_end_of_space(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  of(file).end_of_space = end;
  return 0;
}
haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t) {
  return of(file).file.size();
}

herr_t get_handle(H5FD_t* file, hid_t, void** handle) {
  *handle = file;
  return 0;
}

herr_t read_bytes(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t place, std::size_t size, void* bytes) {
  const std::span<std::uint8_t> to(static_cast<std::uint8_t*>(bytes), size);
  return of(file).file.read(place, to) ? 0 : refused("file read failed");
}

herr_t write_bytes(H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t place, std::size_t size, const void* bytes) {
  DriverFile& driver = of(file);
  if (!driver.file.write(place, {static_cast<const std::uint8_t*>(bytes), size}))
    return refused("file write failed");
  if (type == H5FD_MEM_DRAW) {
    driver.last_bytes = bytes;
    driver.last_size = size;
    driver.last_place = place;
  }
  return 0;
}

herr_t flush_bytes(H5FD_t* file, hid_t, hbool_t) {
  return of(file).file.flush() ? 0 : refused("file write failed");
}

herr_t truncate_file(H5FD_t* file, hid_t, hbool_t) {
  DriverFile& driver = of(file);
  if (driver.file.size() == driver.end_of_space) return 0;
  return driver.file.resize(driver.end_of_space) ? 0 : refused("unable to extend file properly");
}

H5FD_class_t make_class() {
  H5FD_class_t made{};
#ifdef H5FD_CLASS_VERSION
  made.version = H5FD_CLASS_VERSION;
  made.value = 511;  // of those that HDF5 leaves to programs that publish no driver
#endif
  made.name = "wflow_shard";
  made.maxaddr = HADDR_MAX;
  made.fc_degree = H5F_CLOSE_WEAK;
  made.open = open_new;
  made.close = close_file;
  made.query = query;
  made.get_eoa = end_of_space;
  made.set_eoa = set_end_of_space;
  made.get_eof = end_of_file;
  made.get_handle = get_handle;
  made.read = read_bytes;
  made.write = write_bytes;
  made.flush = flush_bytes;
  made.truncate = truncate_file;
  constexpr H5FD_mem_t kSameList[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(kSameList), std::end(kSameList), made.fl_map);
  return made;
}

}  // namespace

void use_shard_driver(hid_t access) {
  static const H5FD_class_t kClass = make_class();
  static const hid_t driver = H5FDregister(&kClass);
  if (driver < 0 || H5Pset_driver(access, driver, nullptr) < 0)
    throw_hdf5(ExitCode::internal, "HDF5 takes no driver for shards");
}

std::optional<std::uint64_t> take_place_of_write(hid_t file, std::span<const std::uint8_t> bytes) {
  void* handle = nullptr;
  if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0 || handle == nullptr) return std::nullopt;
  DriverFile& driver = of(static_cast<H5FD_t*>(handle));
  const void* last = std::exchange(driver.last_bytes, nullptr);
  if (last != bytes.data() || driver.last_size != bytes.size()) return std::nullopt;
  return driver.last_place;
}

}  // namespace wflow::converters
