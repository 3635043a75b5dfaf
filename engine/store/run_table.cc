// SPDX-License-Identifier: Apache-2.0
#include "engine/store/run_table.h"

#include <SQLiteCpp/VariadicBind.h>

#include <algorithm>

namespace wflow::engine::store {

namespace {

std::int64_t signed_of(Element element) {
  return static_cast<std::int64_t>(element);
}

RunTable::Row row_of(SQLite::Statement& select) {
  return {{static_cast<Element>(select.getColumn(0).getInt64()),
           static_cast<Element>(select.getColumn(1).getInt64())},
          select.getColumn(2).getInt64()};
}

}  // namespace

// All go by the primary key (array, first): no condition on `last`, which would read every row before.
RunTable::RunTable(SQLite::Database& database, const std::string& table, const std::string& column)
    : before_(database, "SELECT first, last, " + column + " FROM " + table +
                            " WHERE array = ? AND first <= ? ORDER BY first DESC LIMIT 1"),
      within_(database, "SELECT first, last, " + column + " FROM " + table +
                            " WHERE array = ? AND first > ? AND first <= ? ORDER BY first"),
      put_(database, "INSERT OR REPLACE INTO " + table + " VALUES (?, ?, ?, ?)"),
      erase_(database, "DELETE FROM " + table + " WHERE array = ? AND first BETWEEN ? AND ?"),
      all_(database, "SELECT array, first, last, " + column + " FROM " + table + " ORDER BY array, first") {}

void RunTable::reset() {
  for (SQLite::Statement* statement : {&before_, &within_, &put_, &erase_, &all_}) statement->tryReset();
}

std::optional<RunTable::Row> RunTable::at_or_before(ArrayId array, Element element) {
  SQLite::bind(before_, array, signed_of(element));
  std::optional<Row> row;
  if (before_.executeStep()) row = row_of(before_);
  before_.reset();
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

std::vector<RunTable::Row> RunTable::clear(ArrayId array, Range range, const std::optional<Row>& before) {
  std::vector<Row> touched = beginning_in(array, range.first, range.last);
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

std::vector<RunTable::Row> RunTable::clear(ArrayId array, Range range) {
  return clear(array, range, at_or_before(array, range.first));
}

std::vector<RunTable::Row> RunTable::set(ArrayId array, Range range, std::int64_t value) {
  std::optional<Row> before = at_or_before(array, range.first);
  std::vector<Row> replaced = clear(array, range, before);
  if (!replaced.empty() && range.first > 0) before = at_or_before(array, range.first - 1);
  Range joined = range;
  if (before && before->value == value && before->range.last + 1 == range.first) {
    joined.first = before->range.first;  // put() replaces it
  }
  const auto after = beginning_in(array, range.last, range.last + 1);
  if (!after.empty() && after.front().value == value) {
    joined.last = after.front().range.last;
    erase(array, range.last + 1, range.last + 1);
  }
  put(array, joined, value);
  return replaced;
}

}  // namespace wflow::engine::store
