// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files, and arrays of .npz archives (by libzip). base/npy.h reads the header, also for
// samples:.
#include "base/npy.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "converters/readers/reader.h"
#include "traces/trace_file.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

// IEEE 754 half precision, value by value: subnormal numbers, infinities and NaN included.
float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t bits = exponent == 0x1fU ? sign | 0x7f800000U | fraction << 13
                                               : sign | (exponent + 112) << 23 | fraction << 13;
  return std::bit_cast<float>(bits);
}

// The field that a header describes; Error{data} for types that are not numbers.
InputField field_of(const NpyHeader& header, const std::string& name) {
  InputField field;
  field.shape = header.shape;
  const std::size_t bytes = header.item_bytes;
  if (header.kind == 'b' && bytes == 1) {
    field.dtype = DType::uint8;
    field.stored = "bool";
    return field;
  }
  if (header.kind == 'f' && bytes == 2) {
    field.stored = "float16";
    return field;
  }
  if (header.kind == 'c' && (bytes == 8 || bytes == 16)) {
    field.dtype = bytes == 8 ? DType::float32 : DType::float64;
    field.components = {"r", "i"};
    field.stored = "complex";
    return field;
  }
  const std::string_view kind = header.kind == 'i'   ? "int"
                                : header.kind == 'u' ? "uint"
                                : header.kind == 'f' ? "float"
                                                     : "";
  const auto dtype =
      kind.empty() || bytes > 8 ? std::nullopt : parse_dtype(fmt::format("{}{}", kind, bytes * 8));
  if (!dtype) {
    refuse_npy(
        name,
        fmt::format("its values are of type '{}'; bool, integers of 1 to 8 bytes, floats of 2, 4 or 8 and "
                    "complex numbers of 8 or 16 are read",
                    header.descr));
  }
  field.dtype = *dtype;
  return field;
}

// Values that differ from the file only by their byte order.
void to_native(const NpyHeader& header, const InputField& field, std::span<std::uint8_t> values) {
  if (header.big_endian) swap_byte_order(values, dtype_size(field.dtype));
}

bool is_half(const InputField& field) {
  return field.stored == "float16";
}

// Converts bytes of complete values of the file to values of the field.
void to_values(const NpyHeader& header, const InputField& field, std::span<std::uint8_t> stored,
               std::span<std::uint8_t> values) {
  if (!is_half(field)) {
    std::copy(stored.begin(), stored.end(), values.begin());
    to_native(header, field, values);
    return;
  }
  if (header.big_endian) swap_byte_order(stored, 2);
  for (std::size_t i = 0; i < stored.size() / 2; ++i) {
    const auto low = static_cast<unsigned>(stored[2 * i]);
    const float value =
        from_half(static_cast<std::uint16_t>(low | static_cast<unsigned>(stored[2 * i + 1]) << 8));
    std::memcpy(values.data() + i * sizeof value, &value, sizeof value);
  }
}

std::size_t stored_bytes(const NpyHeader& header, const fs::path& path) {
  const auto bytes = npy_bytes(header);
  if (!bytes || *bytes > kMostSampleBytes)
    throw Error(ExitCode::data,
                fmt::format("{} holds more than 4 GiB, which no sample may have", path.string()));
  return *bytes;
}

class NpyInput final : public InputReader {
 public:
  explicit NpyInput(const fs::path& path) : file_(path), header_(read_npy_header(file_.descriptor(), path)) {
    field_ = field_of(header_, path.string());
  }
  std::vector<InputField> fields() override { return {field_}; }
  InputField find(const Selector&) override {
    const auto bytes = npy_bytes(header_);
    if (!bytes)
      throw Error(ExitCode::data,
                  fmt::format("{} holds more than 4 GiB, which no sample may have", file_.path().string()));
    if (*bytes > file_.size() - header_.data_offset) {
      throw Error(ExitCode::data,
                  fmt::format("{} is cut short: it has {} bytes, its header makes {} behind byte {}",
                              file_.path().string(), file_.size(), *bytes, header_.data_offset));
    }
    return field_;
  }

  void read(const InputField&, const Selection& selection, std::span<std::uint8_t> values) override {
    const std::size_t width = header_.item_bytes;
    if (const auto first = first_of_rows(selection)) {
      const std::size_t bytes = values.size() / value_bytes() * width;
      const std::uint64_t offset = header_.data_offset + *first * bytes_of_row();
      if (is_half(field_)) {
        auto stored = file_.read(offset, bytes);
        to_values(header_, field_, stored, values);
      } else {
        read_piece(offset, values);
        to_native(header_, field_, values);
      }
      return;
    }
    auto stored = file_.read(header_.data_offset, stored_bytes(header_, file_.path()));
    if (header_.fortran_order) to_c_order(stored, header_.shape, width);
    std::vector<std::uint8_t> selected(values.size() / value_bytes() * width);
    take_selection(stored, header_.shape, width, selection, selected);
    to_values(header_, field_, selected, values);
  }

 private:
  std::size_t value_bytes() const {
    return dtype_size(field_.dtype) * std::max<std::size_t>(1, field_.components.size());
  }

  std::uint64_t bytes_of_row() const {
    std::uint64_t bytes = header_.item_bytes;
    for (std::size_t k = 1; k < header_.shape.size(); ++k) bytes *= header_.shape[k];
    return bytes;
  }

  // Neighbouring rows of the slowest axis with all their values are contiguous: the number of the first one
  // if exactly such rows are selected.
  std::optional<std::uint64_t> first_of_rows(const Selection& selection) const {
    if (header_.fortran_order && header_.shape.size() > 1) return std::nullopt;
    for (std::size_t k = 1; k < selection.size(); ++k) {
      if (selection[k].start != 0 || selection[k].count != header_.shape[k] || selection[k].step != 1)
        return std::nullopt;
    }
    if (selection.empty()) return 0;
    if (selection[0].count != 1 && selection[0].step != 1) return std::nullopt;
    return selection[0].start;
  }

  // Reads small pieces together with the following ones: the next rows of a stacked file.
  void read_piece(std::uint64_t offset, std::span<std::uint8_t> values) {
    constexpr std::size_t kSmall = 4096;
    constexpr std::size_t kAhead = 64 << 10;
    if (values.size() > kSmall) {
      file_.read_into(offset, values);
      return;
    }
    if (offset < ahead_from_ || offset + values.size() > ahead_from_ + ahead_.size()) {
      const std::uint64_t end = header_.data_offset + npy_bytes(header_).value_or(0);
      const std::uint64_t left = offset < end ? end - offset : 0;
      ahead_ = file_.read(offset, std::max(values.size(), std::min<std::size_t>(kAhead, left)));
      ahead_from_ = offset;
    }
    const auto from = ahead_.begin() + static_cast<std::ptrdiff_t>(offset - ahead_from_);
    std::copy_n(from, values.size(), values.begin());
  }

  InputFile file_;
  NpyHeader header_;
  InputField field_;
  std::vector<std::uint8_t> ahead_;  // bytes of the file from ahead_from_ on
  std::uint64_t ahead_from_ = 0;
};

struct CloseZip {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

class NpzInput final : public MemoryReader {
 public:
  explicit NpzInput(const fs::path& path) : path_(path), file_bytes_(InputFile(path).size()) {
    int code = 0;
    archive_.reset(zip_open(path.c_str(), ZIP_RDONLY, &code));
    if (archive_) return;
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string why = zip_error_strerror(&error);
    zip_error_fini(&error);
    throw Error(ExitCode::data, fmt::format("{} is not a readable .npz archive: {}", path.string(), why));
  }

  std::vector<InputField> fields() override {
    std::vector<InputField> list;
    for (const std::string& name : names()) {
      InputField field;
      field.name = name;
      list.push_back(std::move(field));
    }
    return list;
  }

  InputField find(const Selector& selector) override {
    const std::vector<std::string> all = names();
    std::string name = selector.dataset;
    if (name.starts_with('/')) name.erase(0, 1);
    if (name.empty() && all.size() == 1) name = all.front();
    if (name.empty()) {
      std::string list;
      for (const auto& each : all) list += (list.empty() ? "" : ", ") + each;
      throw Error(ExitCode::data,
                  fmt::format("{} does not hold just one array (it has {}); name it with the key 'dataset'",
                              path_.string(), all.empty() ? "none" : list));
    }
    if (std::find(all.begin(), all.end(), name) == all.end()) no_such_field(path_, "array", name, all);
    if (name != field_.name || bytes_.empty()) load(name);
    return field_;
  }

 private:
  std::vector<std::string> names() const {
    std::vector<std::string> list;
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const char* entry = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), ZIP_FL_ENC_GUESS);
      const std::string_view name = entry == nullptr ? "" : entry;
      if (name.ends_with(".npy")) list.emplace_back(name.substr(0, name.size() - 4));
    }
    return list;
  }

  [[noreturn]] void fail(const std::string& name, const std::string& why) const {
    throw Error(ExitCode::data,
                fmt::format("the array {} of {} does not read: {}", name, path_.string(), why));
  }

  void load(const std::string& name) {
    const std::string entry = name + ".npy";
    const std::string label = path_.string() + "/" + entry;
    zip_stat_t status;
    zip_stat_init(&status);
    if (zip_stat(archive_.get(), entry.c_str(), 0, &status) != 0 || (status.valid & ZIP_STAT_SIZE) == 0)
      fail(name, zip_strerror(archive_.get()));
    if (status.size > kMostSampleBytes)
      throw Error(ExitCode::data, fmt::format("{} holds more than 4 GiB, which no sample may have", label));
    if (!plausible_size(status.size, file_bytes_))
      fail(name, fmt::format("it claims {} bytes, more than a file of {} bytes can hold", status.size,
                             file_bytes_));
    const std::unique_ptr<zip_file_t, CloseZip> file(zip_fopen(archive_.get(), entry.c_str(), 0));
    if (!file) fail(name, zip_strerror(archive_.get()));
    std::vector<std::uint8_t> content(status.size);
    std::size_t done = 0;
    while (done < content.size()) {
      const zip_int64_t got = zip_fread(file.get(), content.data() + done, content.size() - done);
      if (got <= 0)
        fail(name, got < 0 ? zip_file_strerror(file.get())
                           : fmt::format("it ends at byte {} of {}", done, content.size()));
      done += static_cast<std::size_t>(got);
    }
    const NpyHeader header =
        parse_npy_header(std::span(content).first(std::min(content.size(), kMostNpyHeader)), label);
    field_ = field_of(header, label);
    field_.name = name;
    const std::size_t bytes = stored_bytes(header, path_);
    if (content.size() - header.data_offset < bytes) {
      throw Error(ExitCode::data, fmt::format("{} is cut short: it has {} bytes, {} were expected", label,
                                              content.size(), header.data_offset + bytes));
    }
    content.erase(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(header.data_offset));
    content.resize(bytes);
    if (header.fortran_order) to_c_order(content, header.shape, header.item_bytes);
    bytes_.resize(field_.stored == "float16" ? 2 * bytes : bytes);
    to_values(header, field_, content, bytes_);
  }

  fs::path path_;
  std::uint64_t file_bytes_;
  std::unique_ptr<zip_t, CloseZip> archive_;
};

}  // namespace

std::unique_ptr<InputReader> open_npy(const fs::path& path, const Selector&) {
  if (path.native().ends_with(traces::kIndexEnding)) return open_trace_index(path);
  return std::make_unique<NpyInput>(path);
}

std::unique_ptr<InputReader> open_npz(const fs::path& path, const Selector&) {
  return std::make_unique<NpzInput>(path);
}

}  // namespace wflow::converters
