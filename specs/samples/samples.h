// SPDX-License-Identifier: Apache-2.0
// The sample table: one row a sample, one named column a value. Built-in designs are computed by index on
// any machine; files are read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::specs {

// parts: several designs, one behind the other.
enum class DesignKind { uniform, latin_hypercube, sobol, halton, grid, list, file, parts };

// The name in a study: "latin_hypercube".
std::string_view name_of(DesignKind kind);

struct SampleColumn {
  std::string name;
  double low = 0;  // designs over a box: values in [low, high]
  double high = 1;
  bool log = false;                 // uniform in the logarithm
  bool integer = false;             // rounded down to whole numbers in [low, high]
  std::vector<std::string> values;  // grid and list: the values as written
  bool operator==(const SampleColumn&) const = default;
};

// All data needed to compute any row on any machine.
struct SampleDesign {
  DesignKind kind = DesignKind::list;
  std::uint64_t count = 0;
  std::uint64_t seed = 0;  // sobol, halton: 0 is the plain sequence of GSL, else a shift of it
  std::vector<SampleColumn> columns;
  std::filesystem::path file;  // kind file: absolute .csv, .tsv, .tab, .lines or .npy
  bool header = false;         // csv and tab: the first row names the columns
  std::string checksum;        // XXH3-128 of the campaign's copy of the file; open_samples() compares
  // The counts that a growing campaign had before, ascending: a row never depends on a later count.
  std::vector<std::uint64_t> grown;
  std::vector<SampleDesign>
      parts;  // kind parts: at least one, of the same columns; each with its own `grown`
  bool operator==(const SampleDesign&) const = default;
};

std::vector<std::string> column_names(const SampleDesign& design);

// The places that no block of samples crosses: where the campaign has grown, and where parts meet. Ascending,
// each in (0, count).
std::vector<std::uint64_t> block_starts(const SampleDesign& design);

// Checks that the rows of `old` are the first rows of `now`: returns nothing, or a sentence with the
// difference. Compares the rows of files, and otherwise the designs.
std::optional<std::string> growth_problem(const SampleDesign& old, const SampleDesign& now);

nlohmann::json to_json(const SampleDesign& design);
SampleDesign design_from_json(const nlohmann::json& json);

// Immutable and thread-safe.
class SampleTable {
 public:
  virtual ~SampleTable() = default;
  virtual std::uint64_t count() const = 0;
  virtual const std::vector<std::string>& columns() const = 0;
  // The cell as commands receive it: csv and tab cells exactly as written; computed numbers in the
  // shortest form that reads back as the same double; npy as Python's str().
  virtual std::string text(std::uint64_t row, std::size_t column) const = 0;
  // The same cell as a number; exactly text()'s, and 1 or 0 for a truth value of an .npy file. Throws
  // Error{data} if it is not a number.
  virtual double number(std::uint64_t row, std::size_t column) const;
};

// Throws Error{data} if a file is missing, ragged or of another format.
// Sources: Sobol and Halton by GSL's generators' definitions (Bratley and Fox 1988, TOMS 659), computed
// directly from the index; Latin hypercube by one keyed permutation a column (base/random.h), and after
// growth from n to k n rows as a nested Latin hypercube (Qian 2009, Biometrika 96:957; Sallaberry, Helton
// and Hora 2008, Reliability Engineering and System Safety 93:1047): the new rows take the strata of the
// finer division that the old rows leave free. A file's table names its columns by its header, by the
// design's columns, or "0", "1", ...
std::unique_ptr<const SampleTable> open_samples(const SampleDesign& design);

// Rows first..last, both included.
struct RowRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// The settings that decide the values of a column of a computed design in every row: equal texts mean equal
// values. Empty for columns whose values are given (file, list): these are compared cell by cell.
std::string column_signature(const SampleDesign& design, std::size_t column);

// The rows, in order, in which these columns have the same text in both tables, row number by row number:
// their simulations stay valid. None if one table lacks a column. Without columns: the rows that both have.
// Computed designs cost nothing a row; cells of a file or list are read. Throws Error{data} as open_samples()
// does.
std::vector<RowRange> equal_rows(const SampleDesign& from, const SampleDesign& to,
                                 const std::vector<std::string>& columns);

// The kinds of sample table behind open_samples().

std::unique_ptr<const SampleTable> computed_table(const SampleDesign& design);  // uniform .. list
std::unique_ptr<const SampleTable> text_table(const SampleDesign& design);      // .csv, .tsv, .tab, .lines
std::unique_ptr<const SampleTable> npy_table(const SampleDesign& design);       // .npy
std::unique_ptr<const SampleTable> parts_table(const SampleDesign& design);  // several, one behind the other

// The names of `found` columns of a file: the design's, completed by numbers if it names too few.
std::vector<std::string> column_names(const SampleDesign& design, std::size_t found);

}  // namespace wflow::specs
