// SPDX-License-Identifier: Apache-2.0
// Several designs as one table, each behind the last row of the one before.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "specs/samples/samples.h"

namespace wflow::specs {

namespace {

class PartsTable : public SampleTable {
 public:
  explicit PartsTable(const SampleDesign& design) {
    for (const SampleDesign& part : design.parts) {
      ends_.push_back(count() + part.count);
      tables_.push_back(open_samples(part));
      if (tables_.back()->count() < part.count) {
        throw Error(ExitCode::data, fmt::format("{} has {} rows, it had {} when the study was read",
                                                part.file.string(), tables_.back()->count(), part.count));
      }
    }
    WFLOW_CHECK(!tables_.empty());
    for (const SampleColumn& column : design.columns) names_.push_back(column.name);
  }

  std::uint64_t count() const override { return ends_.empty() ? 0 : ends_.back(); }
  const std::vector<std::string>& columns() const override { return names_; }
  std::string text(std::uint64_t row, std::size_t column) const override {
    const std::size_t part = part_of(row);
    return tables_[part]->text(row - first_of(part), column);
  }
  double number(std::uint64_t row, std::size_t column) const override {
    const std::size_t part = part_of(row);
    return tables_[part]->number(row - first_of(part), column);
  }

 private:
  std::size_t part_of(std::uint64_t row) const {
    const auto at = std::upper_bound(ends_.begin(), ends_.end(), row);
    if (at == ends_.end()) throw Error(ExitCode::data, fmt::format("the samples have no row {}", row));
    return static_cast<std::size_t>(at - ends_.begin());
  }
  std::uint64_t first_of(std::size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  std::vector<std::unique_ptr<const SampleTable>> tables_;
  std::vector<std::uint64_t> ends_;  // for each part, the row behind its last one
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<const SampleTable> parts_table(const SampleDesign& design) {
  return std::make_unique<PartsTable>(design);
}

}  // namespace wflow::specs
