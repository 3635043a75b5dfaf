// SPDX-License-Identifier: Apache-2.0
#include "engine/store/run_table.h"

#include <SQLiteCpp/VariadicBind.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/store/impl.h"

namespace wflow::engine::store {

namespace {

RunTable::Row row_of(SQLite::Statement& select) {
  return {{static_cast<Element>(select.getColumn(0).getInt64()),
           static_cast<Element>(select.getColumn(1).getInt64())},
          select.getColumn(2).getInt64()};
}

}  // namespace

// All go by the primary key (array, first): no condition on `last`, which would read every row before.
RunTable::RunTable(SQLite::Database& database, const std::string& table, const std::string& column)
    : back_(database, "SELECT first, last, " + column + " FROM " + table +
                          " WHERE array = ? AND first <= ? ORDER BY first DESC"),
      within_(database, "SELECT first, last, " + column + " FROM " + table +
                            " WHERE array = ? AND first > ? AND first <= ? ORDER BY first"),
      put_(database, "INSERT OR REPLACE INTO " + table + " VALUES (?, ?, ?, ?)"),
      erase_(database, "DELETE FROM " + table + " WHERE array = ? AND first BETWEEN ? AND ?"),
      erase_value_(database, "DELETE FROM " + table + " WHERE array = ? AND first BETWEEN ? AND ? AND " +
                                 column + " = ?"),
      all_(database, "SELECT array, first, last, " + column + " FROM " + table + " ORDER BY array, first") {}

void RunTable::reset() {
  for (SQLite::Statement* statement : {&back_, &within_, &put_, &erase_, &erase_value_, &all_})
    statement->tryReset();
}

std::optional<RunTable::Row> RunTable::at_or_before(ArrayId array, Element element) {
  SQLite::bind(back_, array, signed_of(element));
  std::optional<Row> row;
  if (back_.executeStep()) row = row_of(back_);
  back_.reset();
  return row;
}

std::vector<RunTable::Row> RunTable::beginning_in(ArrayId array, Element after, Element last) {
  std::vector<Row> rows;
  if (after >= last) return rows;
  SQLite::bind(within_, array, signed_of(after), signed_of(last));
  while (within_.executeStep()) rows.push_back(row_of(within_));
  within_.reset();
  return rows;
}

void RunTable::put(ArrayId array, Range range, std::int64_t value) {
  SQLite::bind(put_, array, signed_of(range.first), signed_of(range.last), value);
  put_.exec();
  put_.reset();
}

void RunTable::erase(ArrayId array, Element first, Element last) {
  SQLite::bind(erase_, array, signed_of(first), signed_of(last));
  erase_.exec();
  erase_.reset();
}

std::vector<RunTable::Row> RunTable::clear(ArrayId array, Range range) {
  std::vector<Row> touched = beginning_in(array, range.first, range.last);
  const std::optional<Row> before = at_or_before(array, range.first);
  if (before && before->range.last >= range.first) touched.insert(touched.begin(), *before);
  if (touched.empty()) return touched;
  erase(array, touched.front().range.first, range.last);
  const Row left = touched.front();
  const Row right = touched.back();
  if (left.range.first < range.first) put(array, {left.range.first, range.first - 1}, left.value);
  if (right.range.last > range.last) put(array, {range.last + 1, right.range.last}, right.value);
  touched.front().range.first = std::max(left.range.first, range.first);
  touched.back().range.last = std::min(right.range.last, range.last);
  return touched;
}

std::optional<std::int64_t> RunTable::find(ArrayId array, Element element) {
  const std::optional<Row> row = at_or_before(array, element);
  return row && row->range.last >= element ? std::optional(row->value) : std::nullopt;
}

// Rows are deleted in stretches: all rows of one value that begin in a stretch go, so that of a million
// scattered rows of equal value one statement takes out all.
class RunTable::Clearing {
 public:
  explicit Clearing(std::span<const Range> parts) : parts_(parts) {}

  // Rows in order.
  void add(const Row& row) {
    while (!parts_.empty() && parts_.front().last < row.range.first) parts_ = parts_.subspan(1);
    Element kept_from = row.range.first;
    const std::size_t before = replaced.size();
    for (const Range& part : parts_) {
      if (part.first > row.range.last) break;
      const Range cut{std::max(part.first, row.range.first), std::min(part.last, row.range.last)};
      replaced.push_back({cut, row.value});
      if (cut.first > kept_from) kept.push_back({{kept_from, cut.first - 1}, row.value});
      kept_from = cut.last + 1;
    }
    if (replaced.size() == before) {
      open_.erase(row.value);
      return;
    }
    if (kept_from <= row.range.last) kept.push_back({{kept_from, row.range.last}, row.value});
    const auto [stretch, begins] = open_.try_emplace(row.value, gone.size());
    if (begins) gone.push_back({{row.range.first, row.range.first}, row.value});
    gone[stretch->second].range.last = row.range.first;
  }

  std::vector<Row> replaced;
  std::vector<Row> gone;  // all rows of this value that begin in the range
  std::vector<Row> kept;  // parts of removed rows to keep

 private:
  std::span<const Range> parts_;
  std::map<std::int64_t, std::size_t> open_;  // value -> its last stretch, while it goes on
};

std::vector<RunTable::Row> RunTable::clear(ArrayId array, std::span<const Range> parts) {
  if (parts.size() == 1) return clear(array, parts.front());
  Clearing clearing(parts);
  const Range bounds{parts.front().first, parts.back().last};
  if (const auto before = at_or_before(array, bounds.first)) clearing.add(*before);
  SQLite::bind(within_, array, signed_of(bounds.first), signed_of(bounds.last));
  while (within_.executeStep()) clearing.add(row_of(within_));
  within_.reset();
  for (const Row& stretch : clearing.gone) {
    SQLite::bind(erase_value_, array, signed_of(stretch.range.first), signed_of(stretch.range.last),
                 stretch.value);
    erase_value_.exec();
    erase_value_.reset();
  }
  for (const Row& row : clearing.kept) put(array, row.range, row.value);
  return std::move(clearing.replaced);
}

// Rows that overlap the range or touch it, in order, by one descent of the tree: rows never overlap, so that
// going back ends at the first one that ends too early.
std::vector<RunTable::Row> RunTable::around(ArrayId array, Range range) {
  std::vector<Row> rows;
  SQLite::bind(back_, array, signed_of(range.last + 1));
  while (back_.executeStep()) {
    const Row row = row_of(back_);
    if (row.range.last + 1 < range.first) break;
    rows.push_back(row);
  }
  back_.reset();
  std::ranges::reverse(rows);
  return rows;
}

std::vector<RunTable::Row> RunTable::set(ArrayId array, Range range, std::int64_t value) {
  Range joined = range;
  std::vector<Row> replaced, kept;
  const std::vector<Row> rows = around(array, range);
  for (const Row& row : rows) {
    const Range cut{std::max(row.range.first, range.first), std::min(row.range.last, range.last)};
    const bool overlaps = cut.first <= cut.last;
    if (overlaps) replaced.push_back({cut, row.value});
    if (row.value == value) {
      joined.first = std::min(joined.first, row.range.first);
      joined.last = std::max(joined.last, row.range.last);
    } else if (overlaps) {
      if (row.range.first < range.first) kept.push_back({{row.range.first, range.first - 1}, row.value});
      if (row.range.last > range.last) kept.push_back({{range.last + 1, row.range.last}, row.value});
    }
  }
  // put() replaces the row that begins with its range.
  const Range gone{std::max(range.first, joined.first + 1), joined.last};
  const auto goes = [&](const Row& row) {
    return row.range.first >= gone.first && row.range.first <= gone.last;
  };
  if (std::ranges::any_of(rows, goes)) erase(array, gone.first, gone.last);
  for (const Row& row : kept) put(array, row.range, row.value);
  put(array, joined, value);
  return replaced;
}

}  // namespace wflow::engine::store
