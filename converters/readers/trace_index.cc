// SPDX-License-Identifier: Apache-2.0
// Traces of simulators (docs/traces.md), one for each sample of a bundle, in float32.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "base/error.h"
#include "converters/readers/reader.h"
#include "traces/trace_file.h"

namespace wflow::converters {
namespace {

namespace fs = std::filesystem;

class TraceInput final : public InputReader {
 public:
  explicit TraceInput(const fs::path& path) : path_(path), file_(path) {}

  std::vector<InputField> fields() override { return {form(0)}; }
  InputField find(const Selector&) override {
    throw Error(ExitCode::spec,
                fmt::format("{} holds the traces of a bundle of samples: 'stacked: true' reads one for each",
                            path_.string()));
  }
  InputField find_in_row(const Selector&, Row row) override {
    WFLOW_CHECK(row);
    return form(file_.count(*row));
  }

  void read(const InputField& field, const Selection& selection, std::span<std::uint8_t> values) override {
    const std::vector<double> rows = file_.rows(selection.front().start);
    std::vector<std::uint8_t> floats(rows.size() * sizeof(float));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto value = static_cast<float>(rows[i]);
      std::memcpy(floats.data() + i * sizeof value, &value, sizeof value);
    }
    const Selection of_rows(selection.begin() + 1, selection.end());
    take_selection(floats, {field.shape.begin() + 1, field.shape.end()}, sizeof(float), of_rows, values);
  }

 private:
  InputField form(std::size_t steps) const {
    InputField field;
    field.dtype = DType::float32;
    field.shape = {file_.samples(), steps, traces::kRowValues};
    return field;
  }

  fs::path path_;
  traces::TraceFile file_;
};

}  // namespace

std::unique_ptr<InputReader> open_trace_index(const fs::path& path) {
  return std::make_unique<TraceInput>(path);
}

}  // namespace wflow::converters
