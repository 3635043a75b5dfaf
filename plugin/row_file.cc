// SPDX-License-Identifier: Apache-2.0
#include "plugin/row_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/process.h"
#include "plugin/library.h"

namespace wflow::plugin {

namespace {

constexpr std::size_t kAlignment = 64;  // of the data in the file, as numpy has it
constexpr std::size_t kFillBytes = 1 << 20;

std::string header_of(const wflow_array& array, std::uint64_t rows) {
  std::string shape = fmt::format("({},", rows);
  for (std::uint32_t axis = 0; axis < array.axes; ++axis)
    shape += fmt::format("{}{}", axis == 0 ? " " : ", ", array.shape[axis]);
  const char* type = array.type == WFLOW_FLOAT32 ? "<f4" : "<f8";
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}), }}", type, shape);
  constexpr std::size_t kBefore = 10;  // magic, version, length
  const std::size_t whole = (kBefore + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.append(whole - kBefore - text.size() - 1, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

void write_at(int fd, std::uint64_t offset, const std::uint8_t* bytes, std::size_t count,
              const std::string& name) {
  while (count > 0) {
    const ssize_t written = ::pwrite(fd, bytes, count, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw system_error(written == 0 ? ENOSPC : errno, "cannot write " + name);
    offset += static_cast<std::uint64_t>(written);
    bytes += written;
    count -= static_cast<std::size_t>(written);
  }
}

template <typename Real>
void fill_with_nan(std::uint8_t* bytes, std::size_t values) {
  const Real nan = std::numeric_limits<Real>::quiet_NaN();
  for (std::size_t i = 0; i < values; ++i) std::memcpy(bytes + i * sizeof nan, &nan, sizeof nan);
}

template <typename Real>
bool all_finite(const std::uint8_t* bytes, std::size_t values) {
  for (std::size_t i = 0; i < values; ++i) {
    Real value;
    std::memcpy(&value, bytes + i * sizeof value, sizeof value);
    if (!std::isfinite(value)) return false;
  }
  return true;
}

}  // namespace

RowFile::RowFile(const wflow_array& array, std::uint64_t rows)
    : name_(std::string(array.name) + ".npy"),
      is_float_(array.type == WFLOW_FLOAT32),
      row_bytes_(values_of(array) * value_bytes(array)) {
  const std::string header = header_of(array, rows);
  data_offset_ = header.size();
  fd_ = FileDescriptor(::open(name_.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd_ && errno != ENOENT) throw system_error(errno, "cannot open " + name_);
  if (!fd_) create(header, rows);
  check(header, rows);
}

// Made under another name and linked to its own, so that nobody finds half of it; of two processes that make
// it at once, the second finds the first one's.
void RowFile::create(const std::string& header, std::uint64_t rows) {
  const std::string temporary = fmt::format(".{}.{}.{}", name_, host_name(), ::getpid());
  {
    const FileDescriptor fd = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    write_all(fd.get(), header, temporary);
    const std::uint64_t step = std::max<std::uint64_t>(1, kFillBytes / row_bytes_);
    std::vector<std::uint8_t> nothing(std::min(step, rows) * row_bytes_);
    clear(nothing.data(), nothing.size() / row_bytes_);
    for (std::uint64_t row = 0; row < rows; row += step)
      write_at(fd.get(), data_offset_ + row * row_bytes_, nothing.data(),
               std::min(step, rows - row) * row_bytes_, name_);
  }
  const int error = ::link(temporary.c_str(), name_.c_str()) == 0 ? 0 : errno;
  ::unlink(temporary.c_str());
  if (error != 0 && error != EEXIST) throw system_error(error, "cannot make " + name_);
  fd_ = open_file(name_, O_RDWR | O_CLOEXEC);
}

void RowFile::check(const std::string& header, std::uint64_t rows) const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw system_error(errno, "cannot read " + name_);
  std::string found(header.size(), '\0');
  const bool same = static_cast<std::uint64_t>(status.st_size) == header.size() + rows * row_bytes_ &&
                    ::pread(fd_.get(), found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) &&
                    found == header;
  if (!same) {
    throw Error(ExitCode::data,
                name_ +
                    " is there and is of another shape or type than the plugin makes; remove it, "
                    "or start a new campaign");
  }
}

void RowFile::write(std::uint64_t first, std::uint64_t count, const std::uint8_t* bytes) {
  write_at(fd_.get(), data_offset_ + first * row_bytes_, bytes, count * row_bytes_, name_);
}

void RowFile::clear(std::uint8_t* bytes, std::uint64_t count) const {
  const std::size_t all = count * row_bytes_;
  is_float_ ? fill_with_nan<float>(bytes, all / sizeof(float))
            : fill_with_nan<double>(bytes, all / sizeof(double));
}

bool RowFile::finite(const std::uint8_t* row) const {
  return is_float_ ? all_finite<float>(row, row_bytes_ / sizeof(float))
                   : all_finite<double>(row, row_bytes_ / sizeof(double));
}

}  // namespace wflow::plugin
