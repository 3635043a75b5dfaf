// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shard_driver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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

// In the form of HDF5's own driver, which throw_hdf5 understands.
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

// The settings of HDF5's own driver, so that the bytes of the file are the same.
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
  made.value = 511;  // reserved by HDF5 for unpublished drivers
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

namespace {

bool write_whole(int fd, std::uint64_t offset, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  return true;
}

bool read_with_zeros(int fd, std::uint64_t offset, std::span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    if (done == 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
  std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
  return true;
}

std::size_t before(std::uint64_t offset, std::uint64_t end, std::size_t bytes) {
  return offset < end ? static_cast<std::size_t>(std::min<std::uint64_t>(end - offset, bytes)) : 0;
}

}  // namespace

GatheredFile::GatheredFile(FileDescriptor fd) : fd_(std::move(fd)) {
  held_.reserve(kHeld);
}

bool GatheredFile::write(std::uint64_t offset, std::span<const std::uint8_t> bytes) {
  if (!fill_to(offset)) return false;
  if (const std::size_t count = before(offset, begin_, bytes.size())) {
    if (!write_whole(fd_.get(), offset, bytes.first(count))) return false;
    bytes = bytes.subspan(count);
    offset += count;
  }
  if (const std::size_t count = before(offset, held_end(), bytes.size())) {
    std::copy_n(bytes.begin(), count, held_.begin() + static_cast<std::ptrdiff_t>(offset - begin_));
    handed_over_ = false;
    bytes = bytes.subspan(count);
  }
  return append(bytes);
}

bool GatheredFile::append(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    std::size_t count = std::min(bytes.size(), kHeld - held_.size());
    if (held_.empty() && bytes.size() >= kHeld) {
      count = bytes.size() / kHeld * kHeld;
      if (!write_whole(fd_.get(), begin_, bytes.first(count))) return false;
      begin_ += count;
    } else {
      held_.insert(held_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
      handed_over_ = false;
      if (held_.size() == kHeld && !hand_over()) return false;
    }
    bytes = bytes.subspan(count);
  }
  size_ = std::max(size_, held_end());
  return true;
}

// Fills the file up to the offset, so that the next bytes are at its end.
bool GatheredFile::fill_to(std::uint64_t offset) {
  if (offset <= held_end()) return true;
  if (offset - held_end() >= kHeld) {  // a hole
    if (!flush()) return false;
    held_.clear();
    begin_ = offset / kHeld * kHeld;
  }
  const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(offset - held_end()), 0);
  return append(zeros);
}

bool GatheredFile::hand_over() {
  if (!flush()) return false;
  begin_ = held_end();
  held_.clear();
  return true;
}

bool GatheredFile::flush() {
  if (!handed_over_ && !write_whole(fd_.get(), begin_, held_)) return false;
  handed_over_ = true;
  return true;
}

bool GatheredFile::read(std::uint64_t offset, std::span<std::uint8_t> bytes) const {
  if (const std::size_t count = before(offset, begin_, bytes.size())) {
    if (!read_with_zeros(fd_.get(), offset, bytes.first(count))) return false;
    bytes = bytes.subspan(count);
    offset += count;
  }
  const std::size_t count = before(offset, held_end(), bytes.size());
  if (count > 0)
    std::copy_n(held_.begin() + static_cast<std::ptrdiff_t>(offset - begin_), count, bytes.begin());
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(count), bytes.end(), std::uint8_t{0});
  return true;
}

bool GatheredFile::resize(std::uint64_t size) {
  if (!flush() || ::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return false;
  if (size < begin_) {
    held_.clear();
    begin_ = size;
  } else if (size < held_end()) {
    held_.resize(static_cast<std::size_t>(size - begin_));
  }
  size_ = size;
  return true;
}

}  // namespace wflow::converters
