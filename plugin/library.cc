// SPDX-License-Identifier: Apache-2.0
#include "plugin/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/process.h"

namespace wflow::plugin {

namespace {

constexpr std::uint32_t kMostArrays = 1000;
constexpr std::size_t kMostValues = std::size_t{1} << 28;  // limit for one array of one sample

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ExitCode::spec, fmt::format("the plugin {} {}", path, what));
}

bool is_file_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !name.empty() && name.size() < 200 && name.front() != '.' &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

void check_array(const std::string& path, const wflow_array& array) {
  if (array.name == nullptr || !is_file_name(array.name)) {
    fail(path,
         fmt::format("has an array '{}', whose name can't be a file's: letters, digits, '_', '-' and '.'",
                     array.name == nullptr ? "" : array.name));
  }
  if (array.type != WFLOW_FLOAT32 && array.type != WFLOW_FLOAT64)
    fail(path,
         fmt::format("gives the array '{}' the type {}; 1 is float32, 2 is float64", array.name, array.type));
  if (array.axes > WFLOW_MOST_AXES)
    fail(path, fmt::format("gives the array '{}' {} axes; {} is the most", array.name, array.axes,
                           WFLOW_MOST_AXES));
  std::size_t values = 1;
  for (std::uint32_t axis = 0; axis < array.axes; ++axis) {
    if (array.shape[axis] == 0 || array.shape[axis] > kMostValues / values)
      fail(path, fmt::format("gives the array '{}' a length of {}", array.name, array.shape[axis]));
    values *= array.shape[axis];
  }
}

}  // namespace

const Description& load_library(const std::string& path, const std::string& symbol) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(ExitCode::spec, fmt::format("cannot load the plugin {}: {}", path, ::dlerror()));
  void* found = ::dlsym(library, symbol.c_str());
  if (found == nullptr) fail(path, fmt::format("has no function '{}'", symbol));
  const auto describe = reinterpret_cast<const Description* (*)()>(found);
  const Description* plugin = describe();
  if (plugin == nullptr) {
    const auto reason = reinterpret_cast<const char* (*)()>(::dlsym(library, (symbol + "_error").c_str()));
    const char* why = reason == nullptr ? nullptr : reason();
    fail(path, why == nullptr ? std::string("describes nothing") : fmt::format("cannot begin: {}", why));
  }
  if (plugin->abi != WFLOW_PLUGIN_ABI && plugin->abi != kPluginAbiWithoutTraces) {
    fail(path, fmt::format("was compiled for version {} of wflow_plugin.h, and this is {}; compile it again",
                           plugin->abi, WFLOW_PLUGIN_ABI));
  }
  if (is_traced(*plugin) == (plugin->run != nullptr))
    fail(path, is_traced(*plugin) ? "has run() and trace(): one of them is enough" : "has no run()");
  if (plugin->arrays == nullptr || plugin->array_count == 0)
    fail(path, is_traced(*plugin) ? "observes no array" : "makes no array");
  if (plugin->array_count > kMostArrays) fail(path, fmt::format("makes {} arrays", plugin->array_count));
  std::set<std::string_view> names;
  for (const wflow_array& array : arrays_of(*plugin)) {
    check_array(path, array);
    if (!names.insert(array.name).second) fail(path, fmt::format("has two arrays '{}'", array.name));
  }
  return *plugin;
}

std::size_t values_of(const wflow_array& array) {
  std::size_t values = 1;
  for (std::uint32_t axis = 0; axis < array.axes; ++axis) values *= array.shape[axis];
  return values;
}

std::size_t value_bytes(const wflow_array& array) {
  return array.type == WFLOW_FLOAT32 ? sizeof(float) : sizeof(double);
}

namespace {

constexpr std::size_t kAlignment = 64;  // alignment of the data in the file, the same as numpy's
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

// Makes the file under another name and links it to its own, so that no process finds half of it. If two
// processes make it at once, the second uses the file of the first.
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
