// SPDX-License-Identifier: Apache-2.0
// Tables without a file: every cell is a function of (seed, row, column).
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "specs/samples/samples.h"

namespace wflow::specs {

namespace {

std::uint64_t column_key(std::uint64_t seed, std::size_t column) {
  return hash64(hash64(seed, 0x5a3d1e5), column);
}

// A place in [0, 1) on the column's axis.
double place(const SampleColumn& column, double u) {
  if (column.integer)
    return std::min(std::floor(column.low + u * (column.high - column.low + 1)), column.high);
  const double value =
      column.log ? std::exp(std::log(column.low) + u * (std::log(column.high) - std::log(column.low)))
                 : column.low + u * (column.high - column.low);
  return std::clamp(value, column.low, column.high);
}

class Computed : public SampleTable {
 public:
  explicit Computed(const SampleDesign& design) : design_(design) {
    for (const SampleColumn& column : design.columns) names_.push_back(column.name);
  }
  std::uint64_t count() const override { return design_.count; }
  const std::vector<std::string>& columns() const override { return names_; }

 protected:
  const SampleDesign& design() const { return design_; }
  const SampleColumn& column(std::size_t index) const { return design_.columns.at(index); }

 private:
  SampleDesign design_;
  std::vector<std::string> names_;
};

// Points in a box: a column's value follows from a place in [0, 1).
class BoxTable : public Computed {
 public:
  using Computed::Computed;
  std::string text(std::uint64_t row, std::size_t index) const final {
    const double value = number(row, index);
    return column(index).integer ? std::to_string(static_cast<std::int64_t>(value)) : text::from_real(value);
  }
  double number(std::uint64_t row, std::size_t index) const final {
    return place(column(index), unit(row, index));
  }

 private:
  virtual double unit(std::uint64_t row, std::size_t index) const = 0;
};

class UniformTable : public BoxTable {
 public:
  using BoxTable::BoxTable;

 private:
  double unit(std::uint64_t row, std::size_t index) const override {
    return unit_real(hash64(column_key(design().seed, index), row));
  }
};

// One axis of a Latin hypercube: one sample in each of `count` equal strata, in the order of a keyed
// permutation, and a hash chooses the place inside the stratum. Grown from n to k n rows, each stratum is cut
// into k, of which the old row has one; the new rows take the others in an order of their own. So all rows
// together are a Latin hypercube again, and any row is computed without the others.
class LatinAxis {
 public:
  LatinAxis(std::uint64_t key, const std::vector<std::uint64_t>& counts) : key_(key) {
    std::uint64_t before = 0;
    for (const std::uint64_t count : counts) {
      WFLOW_CHECK(count > before && (before == 0 || count % before == 0));
      // The first stage's key is that of a design that never grew.
      levels_.push_back({count, Permutation(count - before, before == 0 ? key : hash64(key, count))});
      before = count;
    }
  }

  // In [0, 1).
  double place(std::uint64_t row) const {
    std::size_t level = 0;
    while (row >= levels_[level].count) ++level;
    const double jitter = unit_real(hash64(key_ ^ 0x6a09e667, row));
    const auto stratum = static_cast<double>(stratum_of(row, level));
    return std::min((stratum + jitter) / static_cast<double>(levels_[level].count), kBelowOne);
  }

 private:
  struct Level {
    std::uint64_t count;  // rows, and strata
    Permutation order;    // order of the rows that this level added
  };

  // The stratum, among those of `level`, of a row that this level added.
  std::uint64_t stratum_of(std::uint64_t row, std::size_t level) const {
    const Level& own = levels_[level];
    if (level == 0) return own.order(row);
    const std::uint64_t before = levels_[level - 1].count;
    const std::uint64_t others = own.count / before - 1;  // free strata in each earlier stratum
    const std::uint64_t free = own.order(row - before);
    const std::uint64_t above = free / others;
    const std::uint64_t taken = taken_in(above, level);
    const std::uint64_t within = free % others;
    return above * (others + 1) + within + (within >= taken ? 1 : 0);
  }

  // The stratum of `level`, inside `stratum` of the level before, that an earlier row occupies.
  std::uint64_t taken_in(std::uint64_t stratum, std::size_t level) const {
    const std::uint64_t parts = levels_[level].count / levels_[level - 1].count;
    const auto strata = static_cast<double>(levels_[level].count);
    const auto at = static_cast<std::uint64_t>(place(row_in(stratum, level - 1)) * strata);
    // By rounding, a place at an edge could seem to be beside its stratum.
    const std::uint64_t first = stratum * parts;
    return std::clamp(at, first, first + parts - 1) - first;
  }

  // The row in a stratum of `level`.
  std::uint64_t row_in(std::uint64_t stratum, std::size_t level) const {
    const Level& own = levels_[level];
    if (level == 0) return own.order.inverse(stratum);
    const std::uint64_t before = levels_[level - 1].count;
    const std::uint64_t parts = own.count / before;
    const std::uint64_t above = stratum / parts;
    const std::uint64_t within = stratum % parts;
    const std::uint64_t taken = taken_in(above, level);
    if (within == taken) return row_in(above, level - 1);
    return before + own.order.inverse(above * (parts - 1) + within - (within > taken ? 1 : 0));
  }

  static constexpr double kBelowOne = 1 - 0x1.0p-53;
  std::uint64_t key_;
  std::vector<Level> levels_;
};

// The strata of two axes have independent orders.
class LatinHypercubeTable : public BoxTable {
 public:
  explicit LatinHypercubeTable(const SampleDesign& design) : BoxTable(design) {
    std::vector<std::uint64_t> counts = design.grown;
    counts.push_back(design.count);
    for (std::size_t i = 0; i < design.columns.size(); ++i)
      axes_.emplace_back(column_key(design.seed, i), counts);
  }

 private:
  double unit(std::uint64_t row, std::size_t index) const override { return axes_.at(index).place(row); }

  std::vector<LatinAxis> axes_;
};

class SobolTable : public BoxTable {
 public:
  explicit SobolTable(const SampleDesign& design) : BoxTable(design), sequence_(design.columns.size()) {}

 private:
  double unit(std::uint64_t row, std::size_t index) const override {
    // The plain sequence omits its origin, as GSL does; a shifted one needs it to remain a digital net.
    const bool shifted = design().seed != 0;
    std::uint64_t bits = sequence_.bits(shifted ? row : row + 1, index);
    if (shifted) bits ^= hash64(column_key(design().seed, index), 0) >> (64 - Sobol::kBits);
    return std::ldexp(static_cast<double>(bits), -Sobol::kBits);
  }

  Sobol sequence_;
};

std::vector<std::uint64_t> primes(std::size_t count) {
  std::vector<std::uint64_t> found;
  for (std::uint64_t n = 2; found.size() < count; ++n) {
    const auto divides = [n](std::uint64_t p) { return n % p == 0; };
    if (std::none_of(found.begin(), found.end(), divides)) found.push_back(n);
  }
  return found;
}

double radical_inverse(std::uint64_t n, std::uint64_t base) {
  double weight = 1;
  double sum = 0;
  for (; n != 0; n /= base) {
    weight /= static_cast<double>(base);
    sum += weight * static_cast<double>(n % base);
  }
  return sum;
}

class HaltonTable : public BoxTable {
 public:
  explicit HaltonTable(const SampleDesign& design)
      : BoxTable(design), primes_(primes(design.columns.size())) {}

 private:
  double unit(std::uint64_t row, std::size_t index) const override {
    double u = radical_inverse(row + 1, primes_.at(index));
    if (design().seed != 0) {  // Cranley and Patterson's rotation
      u += unit_real(hash64(column_key(design().seed, index), 0));
      if (u >= 1) u -= 1;
    }
    return u;
  }

  std::vector<std::uint64_t> primes_;
};

// All combinations of the columns' values; the last column changes fastest.
class GridTable : public Computed {
 public:
  using Computed::Computed;
  std::string text(std::uint64_t row, std::size_t index) const override {
    for (std::size_t i = design().columns.size() - 1; i > index; --i) row /= column(i).values.size();
    return column(index).values[row % column(index).values.size()];
  }
};

class ListTable : public Computed {
 public:
  using Computed::Computed;
  std::string text(std::uint64_t row, std::size_t index) const override {
    return column(index).values.at(row);
  }
};

}  // namespace

std::unique_ptr<const SampleTable> computed_table(const SampleDesign& design) {
  switch (design.kind) {
    case DesignKind::uniform:
      return std::make_unique<UniformTable>(design);
    case DesignKind::latin_hypercube:
      return std::make_unique<LatinHypercubeTable>(design);
    case DesignKind::sobol:
      if (design.columns.size() > Sobol::kMaxDimensions) {
        throw Error(ExitCode::data, "the sobol design has 40 columns at most; take latin_hypercube");
      }
      return std::make_unique<SobolTable>(design);
    case DesignKind::halton:
      return std::make_unique<HaltonTable>(design);
    case DesignKind::grid:
      return std::make_unique<GridTable>(design);
    case DesignKind::list:
      return std::make_unique<ListTable>(design);
    case DesignKind::file:
    case DesignKind::parts:
      break;
  }
  broken_invariant("a design that is computed", __FILE__, __LINE__);
}

}  // namespace wflow::specs
