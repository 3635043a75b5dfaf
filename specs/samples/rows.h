// SPDX-License-Identifier: Apache-2.0
// Which rows two tables of samples have in common, row number by row number: what was simulated for these
// stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "specs/samples/samples.h"

namespace wflow::specs {

// Rows first..last, both included.
struct RowRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// What decides the values of a column of a computed design, whatever its row: equal texts, equal values.
// Empty for columns whose values are written down (file, list): these are compared cell by cell.
std::string column_signature(const SampleDesign& design, std::size_t column);

// The rows, in order, in which these columns hold the same text in both tables; of a column that one of them
// does not have, none. Without columns: the rows that both have. Computed designs cost nothing a row; a cell
// of a file or list is read. Error{data} as open_samples().
std::vector<RowRange> equal_rows(const SampleDesign& from, const SampleDesign& to,
                                 const std::vector<std::string>& columns);

}  // namespace wflow::specs
