// SPDX-License-Identifier: Apache-2.0
// Traces of simulators (docs/traces.md): trace.index.npy has for each sample of a bundle the number of its
// file trace.<number>.rows, its first row there, and how many rows.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "converters/readers/reader.h"
#include "converters/readers/trace_index.h"

namespace wflow::converters {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexEnding = ".index.npy";

class TraceInput final : public InputReader {
 public:
  explicit TraceInput(fs::path path) : path_(std::move(path)), index_(open_npy_array(path_)) {}

  std::vector<InputField> fields() override { return {form(0)}; }
  InputField find(const Selector&) override {
    throw Error(ExitCode::spec,
                fmt::format("{} holds the traces of a bundle of samples: 'stacked: true' reads one for each",
                            path_.string()));
  }
  InputField find_in_row(const Selector&, Row row) override {
    WFLOW_CHECK(row);
    return form(entry(*row).count);
  }

  void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) override {
    const Entry place = entry(selection.front().start);
    std::vector<double> rows(place.count * traces::kRowValues);
    read_rows(place, rows);
    std::vector<std::uint8_t> floats(rows.size() * sizeof(float));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto value = static_cast<float>(rows[i]);
      std::memcpy(floats.data() + i * sizeof value, &value, sizeof value);
    }
    const Selection of_rows(selection.begin() + 1, selection.end());
    take_selection(floats, {field.shape.begin() + 1, field.shape.end()}, sizeof(float), of_rows, values);
  }

  std::vector<double> rows_of(std::uint64_t row) {
    const Entry place = entry(row);
    std::vector<double> rows(place.count * traces::kRowValues);
    read_rows(place, rows);
    return rows;
  }

 private:
  struct Entry {
    std::uint64_t file = 0;
    std::uint64_t first = 0;
    std::size_t count = 0;
  };

  static Array open_npy_array(const fs::path& path) {
    Selector plain;
    plain.format = Format::npy;
    const auto reader = open_plain_npy(path);
    InputArray read = read_input(*reader, path, plain);
    if (read.array.dtype != DType::float64 || read.array.shape.size() != 2 || read.array.shape[1] != 3)
      throw Error(ExitCode::data,
                  fmt::format("{} is no index of traces: it is to have three float64 for each "
                              "sample",
                              path.string()));
    return std::move(read.array);
  }

  InputField form(std::size_t steps) const {
    InputField field;
    field.dtype = DType::float32;
    field.shape = {index_.shape[0], steps, traces::kRowValues};
    return field;
  }

  Entry entry(std::uint64_t row) const {
    if (row >= index_.shape[0])
      throw Error(ExitCode::data, fmt::format("{} has {} samples, and none of number {}", path_.string(),
                                              index_.shape[0], row));
    double values[3];
    std::memcpy(values, index_.bytes.data() + row * sizeof values, sizeof values);
    for (const double value : values)
      if (!(value >= 0 && value < 0x1p53))
        throw Error(ExitCode::data,
                    fmt::format("{} has no trace of sample {} of its bundle: it has not run, or has "
                                "failed",
                                path_.string(), row));
    return {static_cast<std::uint64_t>(values[0]), static_cast<std::uint64_t>(values[1]),
            static_cast<std::size_t>(values[2])};
  }

  void read_rows(const Entry& place, std::vector<double>& to) {
    auto& file = files_[place.file];
    if (!file) {
      std::string name = path_.filename().string();
      name.resize(name.size() - kIndexEnding.size());
      file = std::make_unique<InputFile>(path_.parent_path() / fmt::format("{}.{}.rows", name, place.file));
    }
    const std::span<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(to.data()),
                                        to.size() * sizeof(double));
    file->read_into(place.first * traces::kRowValues * sizeof(double), bytes);
  }

  fs::path path_;
  Array index_;
  std::map<std::uint64_t, std::unique_ptr<InputFile>> files_;
};

}  // namespace

bool is_trace_index(const fs::path& path) {
  return path.filename().string().ends_with(kIndexEnding);
}

std::unique_ptr<InputReader> open_trace_index(const fs::path& path) {
  return std::make_unique<TraceInput>(path);
}

std::vector<double> read_trace(InputReader& reader, std::uint64_t row) {
  return dynamic_cast<TraceInput&>(reader).rows_of(row);
}

}  // namespace wflow::converters
