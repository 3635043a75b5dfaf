// SPDX-License-Identifier: Apache-2.0
// NetCDF, classic and 4, by libnetcdf: a variable, decoded with its scale_factor, add_offset, _FillValue and
// missing_value (CF conventions, section 8.1). A missing value becomes NaN; in a variable of integers without
// scale it makes the sample unusable.
#include <fmt/format.h>
#include <netcdf.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "converters/input/hdf5_handle.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t kDimensions = 10;
constexpr std::uint32_t kVariables = 11;
constexpr std::uint32_t kAttributes = 12;
constexpr std::array<std::uint64_t, 12> kTypeBytes = {0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};  // by nc_type

class HeaderWalk {
 public:
  HeaderWalk(const InputFile& file, int version) : file_(file), version_(version) {}

  void run() {
    word(wide());  // the number of records, or "streaming"
    list(kDimensions, [&] {
      name();
      word(wide());
    });
    attributes();
    list(kVariables, [&] { variable(); });
  }

 private:
  bool wide() const { return version_ == 5; }

  [[noreturn]] void fail(std::uint64_t at, const char* what) const {
    throw Error(ExitCode::data, fmt::format("{} is not a readable NetCDF file: its header has {} at byte {}",
                                            file_.path().string(), what, at));
  }

  // A big-endian word of 8 bytes or 4.
  std::uint64_t word(bool eight) {
    const std::size_t bytes = eight ? 8 : 4;
    if (file_.size() - at_ < bytes) fail(at_, "its end");
    if (at_ < start_ || at_ + bytes > start_ + buffer_.size()) {
      start_ = at_;
      buffer_ =
          file_.read(at_, static_cast<std::size_t>(std::min<std::uint64_t>(kBuffer, file_.size() - at_)));
    }
    std::uint64_t value = 0;
    for (std::size_t k = 0; k < bytes; ++k)
      value = value << 8 | buffer_[static_cast<std::size_t>(at_ - start_) + k];
    at_ += bytes;
    return value;
  }

  // Values of `width` bytes, filled up to a multiple of four.
  void skip(std::uint64_t count, std::uint64_t width) {
    const std::uint64_t left = file_.size() - at_;
    if (count > left || count * width > left) fail(at_, "a length beyond the end of the file");
    at_ += std::min((count * width + 3) / 4 * 4, left);
  }

  void name() { skip(word(wide()), 1); }

  template <typename Element>
  void list(std::uint32_t tag, Element element) {
    const std::uint64_t place = at_;
    const std::uint64_t found = word(false);
    const std::uint64_t count = word(wide());
    if (found == 0 && count == 0) return;  // absent
    if (found != tag) fail(place, "an unknown list");
    if (count > (file_.size() - at_) / 8) fail(place, "a list with more entries than the file can hold");
    for (std::uint64_t k = 0; k < count; ++k) element();
  }

  void attributes() {
    list(kAttributes, [&] {
      name();
      const std::uint64_t place = at_;
      const std::uint64_t type = word(false);
      if (type == 0 || type >= kTypeBytes.size()) fail(place, "an unknown type");
      skip(word(wide()), kTypeBytes[type]);
    });
  }

  void variable() {
    name();
    skip(word(wide()), wide() ? 8 : 4);  // indices of its dimensions
    attributes();
    word(false);          // type
    word(wide());         // bytes
    word(version_ != 1);  // offset of its data
  }

  static constexpr std::size_t kBuffer = 64 << 10;
  const InputFile& file_;
  int version_;
  std::uint64_t at_ = 4;
  std::uint64_t start_ = 0;  // offset of the buffer
  std::vector<std::uint8_t> buffer_;
};

// Walks through the header of a classic NetCDF file (CDF-1, 2 and 5; "The NetCDF Classic Format
// Specification") and throws Error{data} if it claims more than the file holds. libnetcdf trusts such
// claims: it allocates gigabytes for a list of two thousand million names. Other files pass.
void check_classic_header(const InputFile& file) {
  if (file.size() < 4) return;
  const std::vector<std::uint8_t> magic = file.read(0, 4);
  const bool classic = std::equal(magic.begin(), magic.begin() + 3, std::string_view("CDF").begin());
  if (classic && (magic[3] == 1 || magic[3] == 2 || magic[3] == 5)) HeaderWalk(file, magic[3]).run();
}

}  // namespace

namespace {

std::optional<DType> dtype_of_netcdf(nc_type type) {
  switch (type) {
    case NC_BYTE:
      return DType::int8;
    case NC_UBYTE:
      return DType::uint8;
    case NC_SHORT:
      return DType::int16;
    case NC_USHORT:
      return DType::uint16;
    case NC_INT:
      return DType::int32;
    case NC_UINT:
      return DType::uint32;
    case NC_INT64:
      return DType::int64;
    case NC_UINT64:
      return DType::uint64;
    case NC_FLOAT:
      return DType::float32;
    case NC_DOUBLE:
      return DType::float64;
    default:
      return std::nullopt;
  }
}

// The default fill value, which unwritten data has (netcdf.h). Not for unsigned types: their fill values are
// the greatest ones, which occur in images.
std::optional<double> usual_fill(DType type) {
  switch (type) {
    case DType::int16:
      return NC_FILL_SHORT;
    case DType::int32:
      return NC_FILL_INT;
    case DType::float32:
      return static_cast<double>(NC_FILL_FLOAT);
    case DType::float64:
      return NC_FILL_DOUBLE;
    default:
      return std::nullopt;
  }
}

struct Variable {
  int group = 0;
  int id = 0;
  DType stored = DType::float32;
  std::optional<double> scale, offset, fill, missing;
  bool unpacks() const { return scale.has_value() || offset.has_value(); }
};

bool is_hdf5(const fs::path& path) {
  const Hdf5Section section;
  return H5Fis_hdf5(path.c_str()) > 0;
}

class NetcdfInput final : public InputReader {
 public:
  NetcdfInput(const fs::path& path, bool external) : path_(path) {
    const InputFile file(path);
    file_bytes_ = file.size();
    check_classic_header(file);
    if (!external && is_hdf5(path)) refuse_other_files(path);
    const Hdf5Section section;  // libnetcdf is not thread-safe either, and calls HDF5
    const int status = nc_open(path.c_str(), NC_NOWRITE, &file_);
    if (status != NC_NOERR) {
      file_ = -1;
      throw Error(ExitCode::data,
                  fmt::format("{} is not a readable NetCDF file: {}", path.string(), nc_strerror(status)));
    }
  }
  ~NetcdfInput() override {
    const Hdf5Section section;
    if (file_ >= 0) nc_close(file_);
  }

  std::vector<InputField> fields() override {
    const Hdf5Section section;
    std::vector<InputField> list;
    for (const std::string& name : names()) {
      InputField field;
      field.name = name;
      list.push_back(std::move(field));
    }
    return list;
  }

  InputField find(const Selector& selector) override {
    const Hdf5Section section;
    std::string name = selector.dataset;
    if (name.empty()) name = only_name();
    if (name.starts_with('/')) name.erase(0, 1);
    return describe(name, locate(name));
  }

  void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) override {
    const Hdf5Section section;
    const Variable& variable = found_[field.index];
    std::vector<std::size_t> start;
    std::vector<std::size_t> count;
    std::vector<std::ptrdiff_t> step;
    start.reserve(1);  // libnetcdf needs arrays for a single number, too
    count.reserve(1);
    step.reserve(1);
    std::size_t total = 1;
    for (const AxisRange& range : selection) {
      start.push_back(range.start);
      count.push_back(range.count);
      step.push_back(static_cast<std::ptrdiff_t>(range.step));
      total *= range.count;
    }
    std::vector<std::uint8_t> packed;
    std::uint8_t* into = values.data();
    if (variable.stored != field.dtype) {
      packed.resize(total * dtype_size(variable.stored));
      into = packed.data();
    }
    const int status =
        nc_get_vars(variable.group, variable.id, start.data(), count.data(), step.data(), into);
    if (status != NC_NOERR) fail(field.name, nc_strerror(status));
    unpack(field, variable, total, into, values);
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& why) const {
    throw Error(ExitCode::data,
                fmt::format("the variable {} of {} does not read: {}", name, path_.string(), why));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> list;
    int count = 0;
    if (nc_inq_nvars(file_, &count) != NC_NOERR) return list;
    for (int id = 0; id < count; ++id) {
      char name[NC_MAX_NAME + 1] = {};
      if (nc_inq_varname(file_, id, name) == NC_NOERR) list.emplace_back(name);
    }
    return list;
  }

  // The only variable that is not a coordinate (a variable named like its only dimension).
  std::string only_name() const {
    std::vector<std::string> data;
    for (const std::string& name : names()) {
      int dimension = 0;
      if (nc_inq_dimid(file_, name.c_str(), &dimension) != NC_NOERR) data.push_back(name);
    }
    if (data.size() == 1) return data.front();
    std::string list;
    for (const auto& name : data) list += (list.empty() ? "" : ", ") + name;
    throw Error(ExitCode::data,
                fmt::format("{} does not hold just one variable (it has {}); name it with the key 'variable'",
                            path_.string(), data.empty() ? "none" : list));
  }

  Variable locate(const std::string& name) const {
    Variable variable;
    variable.group = file_;
    const auto slash = name.rfind('/');
    const std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
    const bool grouped = slash != std::string::npos;
    if (grouped &&
        nc_inq_grp_full_ncid(file_, ("/" + name.substr(0, slash)).c_str(), &variable.group) != NC_NOERR)
      no_such_field(path_, "variable", name, names());
    if (nc_inq_varid(variable.group, last.c_str(), &variable.id) != NC_NOERR)
      no_such_field(path_, "variable", name, names());
    return variable;
  }

  std::optional<double> attribute(const Variable& variable, const char* name) const {
    nc_type type = NC_NAT;
    std::size_t length = 0;
    if (nc_inq_att(variable.group, variable.id, name, &type, &length) != NC_NOERR) return std::nullopt;
    if (length != 1 || !dtype_of_netcdf(type)) return std::nullopt;
    double value = 0;
    if (nc_get_att_double(variable.group, variable.id, name, &value) != NC_NOERR) return std::nullopt;
    return value;
  }

  bool is_double(const Variable& variable, const char* name) const {
    nc_type type = NC_NAT;
    return nc_inq_atttype(variable.group, variable.id, name, &type) == NC_NOERR && type == NC_DOUBLE;
  }

  // Classic files have no unsigned bytes; an attribute marks them by convention.
  bool says_unsigned(const Variable& variable) const {
    nc_type type = NC_NAT;
    std::size_t length = 0;
    if (nc_inq_att(variable.group, variable.id, "_Unsigned", &type, &length) != NC_NOERR || type != NC_CHAR ||
        length != 4)
      return false;
    char text[5] = {};
    return nc_get_att_text(variable.group, variable.id, "_Unsigned", text) == NC_NOERR &&
           std::strcmp(text, "true") == 0;
  }

  InputField describe(const std::string& name, Variable variable) {
    nc_type type = NC_NAT;
    int axes = 0;
    if (nc_inq_vartype(variable.group, variable.id, &type) != NC_NOERR ||
        nc_inq_varndims(variable.group, variable.id, &axes) != NC_NOERR)
      fail(name, "its header is damaged");
    const auto stored = dtype_of_netcdf(type);
    if (!stored) fail(name, "it is not of numbers");
    variable.stored = *stored;
    if (variable.stored == DType::int8 && says_unsigned(variable)) variable.stored = DType::uint8;
    std::vector<int> dimensions(static_cast<std::size_t>(axes));
    if (axes > 0 && nc_inq_vardimid(variable.group, variable.id, dimensions.data()) != NC_NOERR)
      fail(name, "its header is damaged");
    InputField field;
    field.name = name;
    for (const int dimension : dimensions) {
      std::size_t length = 0;
      if (nc_inq_dimlen(variable.group, dimension, &length) != NC_NOERR) fail(name, "its header is damaged");
      field.shape.push_back(length);
    }
    variable.scale = attribute(variable, "scale_factor");
    variable.offset = attribute(variable, "add_offset");
    variable.fill = attribute(variable, "_FillValue");
    if (!variable.fill) variable.fill = usual_fill(variable.stored);
    variable.missing = attribute(variable, "missing_value");
    field.dtype = variable.stored;
    if (variable.unpacks()) {
      const bool wide = is_double(variable, variable.scale ? "scale_factor" : "add_offset") ||
                        variable.stored == DType::float64;
      field.dtype = wide ? DType::float64 : DType::float32;
      field.stored = fmt::format("{} with scale_factor {} and add_offset {}", dtype_name(variable.stored),
                                 variable.scale.value_or(1), variable.offset.value_or(0));
    }
    const auto bytes = array_bytes(variable.stored, field.shape);
    if (bytes && !plausible_size(*bytes, file_bytes_))
      fail(name,
           fmt::format("it claims {} bytes, more than a file of {} bytes can hold", *bytes, file_bytes_));
    field.index = found_.size();
    found_.push_back(variable);
    return field;
  }

  // value = stored * scale_factor + add_offset, in double precision; `from` may be `values` itself.
  void unpack(const InputField& field, const Variable& variable, std::size_t total, const std::uint8_t* from,
              std::span<std::uint8_t> values) const {
    with_type(variable.stored, [&](auto stored) {
      with_type(field.dtype, [&](auto value) {
        const bool floating = std::is_floating_point_v<decltype(value)>;
        for (std::size_t i = 0; i < total; ++i) {
          std::memcpy(&stored, from + i * sizeof stored, sizeof stored);
          const auto number = static_cast<double>(stored);
          const bool missing = number == variable.fill || number == variable.missing;
          if (missing && !floating)
            fail(field.name,
                 fmt::format("its value {} is the missing value {}, which integers can't say otherwise", i,
                             number));
          if (missing) {
            value = static_cast<decltype(value)>(std::numeric_limits<double>::quiet_NaN());
          } else if (variable.unpacks()) {
            value = static_cast<decltype(value)>(number * variable.scale.value_or(1) +
                                                 variable.offset.value_or(0));
          } else {
            value = static_cast<decltype(value)>(stored);
          }
          std::memcpy(values.data() + i * sizeof value, &value, sizeof value);
        }
      });
    });
  }

  fs::path path_;
  std::uint64_t file_bytes_ = 0;
  int file_ = -1;
  std::vector<Variable> found_;
};

}  // namespace

std::unique_ptr<InputReader> open_netcdf(const fs::path& path, const Selector& selector) {
  return std::make_unique<NetcdfInput>(path, selector.external);
}

}  // namespace wflow::converters
