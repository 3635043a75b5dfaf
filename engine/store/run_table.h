// SPDX-License-Identifier: Apache-2.0
// A map from elements to values, kept on disk as runs: neighbours of equal value are one row (array, first,
// last, value), and rows never overlap. Every operation costs O(log rows + rows touched).
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/scheduler.h"

namespace wflow::engine::store {

class RunTable {
 public:
  struct Row {
    Range range;
    std::int64_t value = 0;
  };
  // `column` is the name of the value.
  RunTable(SQLite::Database& database, const std::string& table, const std::string& column);

  // The elements have this value from now on, whatever they had. Gives what was there, cut to `range`.
  std::vector<Row> set(ArrayId array, Range range, std::int64_t value);
  // The elements have no value from now on. Gives what was there, cut to `range`.
  std::vector<Row> clear(ArrayId array, Range range);
  // The same for many parts, in order and disjoint, in one pass over the rows between them.
  std::vector<Row> clear(ArrayId array, std::span<const Range> parts);
  std::optional<std::int64_t> find(ArrayId array, Element element);

  // In order of array and element; of all arrays.
  template <typename Visit>
  void for_each(Visit visit) {
    while (all_.executeStep()) {
      visit(static_cast<ArrayId>(all_.getColumn(0).getInt64()),
            Range{static_cast<Element>(all_.getColumn(1).getInt64()),
                  static_cast<Element>(all_.getColumn(2).getInt64())},
            all_.getColumn(3).getInt64());
    }
    all_.reset();
  }
  // After an error in the middle of a read: a pending one would block the next commit.
  void reset();

 private:
  class Clearing;

  std::optional<Row> at_or_before(ArrayId array, Element element);
  std::vector<Row> beginning_in(ArrayId array, Element after, Element last);
  std::vector<Row> around(ArrayId array, Range range);
  void put(ArrayId array, Range range, std::int64_t value);
  void erase(ArrayId array, Element first, Element last);

  SQLite::Statement back_, within_, put_, erase_, erase_value_, all_;
};

}  // namespace wflow::engine::store
