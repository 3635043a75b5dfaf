// SPDX-License-Identifier: Apache-2.0
// Raw binary, as the configuration describes it; with `record_markers`, a file of unformatted Fortran
// records.
#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

class RawInput final : public InputReader {
 public:
  RawInput(const fs::path& path, const Selector& selector) : file_(path), form_(selector.raw) {
    if (form_.shape.empty()) {
      throw Error(
          ExitCode::spec,
          fmt::format("{} is raw binary: the keys 'shape' and 'raw: {{dtype: ...}}' must say what is in it",
                      path.string()));
    }
    const auto bytes = array_bytes(form_.dtype, form_.shape);
    if (!bytes) throw Error(ExitCode::spec, "'shape' is of more than 4 GiB, which no sample may have");
    bytes_ = *bytes;
    if (form_.markers > 0) {
      load_records();
      return;
    }
    field_.dtype = form_.dtype;
    field_.shape = form_.shape;
    stacked_ = selector.stacked;
    const std::uint64_t arrays = file_.size() >= form_.offset ? (file_.size() - form_.offset) / bytes_ : 0;
    if (stacked_) field_.shape.insert(field_.shape.begin(), arrays);
  }

  std::vector<InputField> fields() override { return {field_}; }
  InputField find(const Selector&) override { return field_; }

  void read(const InputField&, const Selection& selection, std::span<std::uint8_t> values) override {
    if (!stacked_) {
      const std::uint64_t end = form_.offset + bytes_;
      if (form_.markers == 0 && file_.size() != end) {
        throw Error(ExitCode::data,
                    fmt::format("{} has {} bytes, but ({}) {} after {} bytes makes {}", file_.path().string(),
                                file_.size(), fmt::join(form_.shape, ", "), dtype_name(form_.dtype),
                                form_.offset, end));
      }
      take(form_.markers > 0 ? records_ : file_.read(form_.offset, bytes_), selection, values);
      return;
    }
    // A selection begins with the array's number, and has one array.
    WFLOW_CHECK(selection[0].count == 1);
    take(file_.read(form_.offset + selection[0].start * bytes_, bytes_),
         Selection(selection.begin() + 1, selection.end()), values);
  }

 private:
  void take(std::vector<std::uint8_t> bytes, const Selection& selection,
            std::span<std::uint8_t> values) const {
    const std::size_t width = dtype_size(form_.dtype);
    if (form_.byte_order == ByteOrder::big) swap_byte_order(bytes, width);
    if (form_.fortran_order) to_c_order(bytes, form_.shape, width);
    take_selection(bytes, form_.shape, width, selection, values);
  }

  // A record is enclosed by two copies of its length; a negative length (gfortran) means that the record
  // continues behind it. The contents of all records make one array.
  void load_records() {
    field_.dtype = form_.dtype;
    field_.shape = form_.shape;
    std::uint64_t at = form_.offset;
    while (at < file_.size()) {
      const std::uint64_t length = marker(at);
      if (length > file_.size() - at || 2 * form_.markers > file_.size() - at - length) {
        throw Error(ExitCode::data,
                    fmt::format("{}: the record at byte {} claims {} bytes, but the file has {}",
                                file_.path().string(), at, length, file_.size()));
      }
      if (marker(at + form_.markers + length) != length) {
        throw Error(ExitCode::data, fmt::format("{}: the record at byte {} begins with the length {} and "
                                                "ends with {}; is 'record_markers: {}' or "
                                                "the byte order another?",
                                                file_.path().string(), at, length,
                                                marker(at + form_.markers + length), form_.markers));
      }
      const auto content = file_.read(at + form_.markers, length);
      if (records_.size() + content.size() > bytes_) break;
      records_.insert(records_.end(), content.begin(), content.end());
      at += length + 2 * form_.markers;
    }
    if (records_.size() != bytes_ || at < file_.size()) {
      throw Error(ExitCode::data,
                  fmt::format("{} has {} records of {} bytes, but ({}) {} makes {}", file_.path().string(),
                              at < file_.size() ? "more than" : "only", records_.size(),
                              fmt::join(form_.shape, ", "), dtype_name(form_.dtype), bytes_));
    }
  }

  std::uint64_t marker(std::uint64_t at) const {
    auto bytes = file_.read(at, form_.markers);
    if (form_.byte_order == ByteOrder::big) swap_byte_order(bytes, form_.markers);
    if (form_.markers == 8) {
      std::int64_t value = 0;
      std::memcpy(&value, bytes.data(), sizeof value);
      return value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    }
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return static_cast<std::uint64_t>(value < 0 ? -static_cast<std::int64_t>(value)
                                                : static_cast<std::int64_t>(value));
  }

  InputFile file_;
  RawForm form_;
  InputField field_;
  std::size_t bytes_ = 0;
  bool stacked_ = false;  // arrays one behind the other
  std::vector<std::uint8_t> records_;
};

}  // namespace

std::unique_ptr<InputReader> open_raw(const fs::path& path, const Selector& selector) {
  return std::make_unique<RawInput>(path, selector);
}

}  // namespace wflow::converters
