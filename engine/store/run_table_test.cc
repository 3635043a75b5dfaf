// SPDX-License-Identifier: Apache-2.0
#include "engine/store/run_table.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <map>

#include "base/random.h"

namespace wflow::engine::store {
namespace {

class RunTableTest : public ::testing::Test {
 protected:
  RunTableTest()
      : database_(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE),
        table_((database_.exec(
                    "CREATE TABLE t (array INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT "
                    "NULL, value INTEGER NOT NULL, PRIMARY KEY (array, first)) WITHOUT ROWID"),
                database_),
               "t", "value") {}

  std::string text() {
    std::string text;
    table_.for_each([&](ArrayId array, Range range, std::int64_t value) {
      text += std::to_string(array) + ":" + std::to_string(range.first) + "-" + std::to_string(range.last) +
              "=" + std::to_string(value) + " ";
    });
    return text;
  }

  // Instructions of SQLite's machine that `body` takes.
  template <typename Body>
  int instructions(Body body) {
    int count = 0;
    sqlite3_progress_handler(
        database_.getHandle(), 1,
        [](void* counter) {
          ++*static_cast<int*>(counter);
          return 0;
        },
        &count);
    body();
    sqlite3_progress_handler(database_.getHandle(), 0, nullptr, nullptr);
    return count;
  }

  SQLite::Database database_;
  RunTable table_;
};

TEST_F(RunTableTest, NeighboursOfEqualValueAreOneRow) {
  table_.set(0, {3, 5}, 1);
  table_.set(0, {0, 2}, 1);
  table_.set(0, {7, 9}, 1);
  table_.set(0, {6, 6}, 2);
  EXPECT_EQ(text(), "0:0-5=1 0:6-6=2 0:7-9=1 ");
  table_.set(0, {6, 6}, 1);
  EXPECT_EQ(text(), "0:0-9=1 ");
  table_.set(1, {10, 11}, 1);
  EXPECT_EQ(text(), "0:0-9=1 1:10-11=1 ");
}

TEST_F(RunTableTest, WhatIsReplacedIsGivenAndCut) {
  table_.set(0, {0, 9}, 1);
  table_.set(0, {10, 19}, 2);
  const auto replaced = table_.set(0, {5, 14}, 3);
  ASSERT_EQ(replaced.size(), 2u);
  EXPECT_EQ(replaced[0].range, (Range{5, 9}));
  EXPECT_EQ(replaced[1].range, (Range{10, 14}));
  EXPECT_EQ(replaced[1].value, 2);
  EXPECT_EQ(text(), "0:0-4=1 0:5-14=3 0:15-19=2 ");
  EXPECT_EQ(table_.clear(0, {7, 7}).size(), 1u);
  EXPECT_TRUE(table_.clear(0, {7, 7}).empty());
  EXPECT_EQ(text(), "0:0-4=1 0:5-6=3 0:8-14=3 0:15-19=2 ");
}

// Against the plain map from element to value.
TEST_F(RunTableTest, AgreesWithAMapOfElements) {
  constexpr Element kElements = 40;
  std::uint64_t drawn = 0;
  const auto below = [&drawn](std::uint64_t count) { return hash64(7, drawn++) % count; };
  std::map<Element, std::int64_t> model;
  for (int step = 0; step < 3000; ++step) {
    const Element first = below(kElements);
    const Range range{first, first + below(kElements - first)};
    const auto value = static_cast<std::int64_t>(below(4));
    std::map<Element, std::int64_t> expected, given;
    for (Element e = range.first; e <= range.last; ++e) {
      if (model.contains(e)) expected[e] = model[e];
      value > 0 ? void(model[e] = value) : void(model.erase(e));
    }
    for (const auto& row : value > 0 ? table_.set(0, range, value) : table_.clear(0, range))
      for (Element e = row.range.first; e <= row.range.last; ++e) given[e] = row.value;
    ASSERT_EQ(given, expected) << step;
    std::map<Element, std::int64_t> stored;
    std::optional<RunTable::Row> before;
    table_.for_each([&](ArrayId, Range r, std::int64_t v) {
      EXPECT_FALSE(before && before->range.last + 1 == r.first && before->value == v) << "not joined";
      before = {r, v};
      for (Element e = r.first; e <= r.last; ++e) EXPECT_TRUE(stored.emplace(e, v).second);
    });
    ASSERT_EQ(stored, model) << step;
  }
}

TEST_F(RunTableTest, ManyPartsAtOnceAreAsOneByOne) {
  std::uint64_t drawn = 0;
  const auto below = [&drawn](std::uint64_t count) { return hash64(8, drawn++) % count; };
  for (int round = 0; round < 300; ++round) {
    std::vector<Range> parts;
    for (Element next = below(5); next < 60; next = parts.back().last + 1 + below(4))
      parts.push_back({next, next + below(5)});
    for (int i = 0; i < 20; ++i) {
      const Element first = below(60);
      const Range range{first, first + below(8)};
      const auto value = static_cast<std::int64_t>(1 + below(3));
      table_.set(0, range, value);
      table_.set(1, range, value);
    }
    std::map<Element, std::int64_t> expected, given;
    for (const Range& part : parts) {
      for (const auto& row : table_.clear(0, part))
        for (Element e = row.range.first; e <= row.range.last; ++e) expected[e] = row.value;
    }
    for (const auto& row : table_.clear(1, parts))
      for (Element e = row.range.first; e <= row.range.last; ++e)
        EXPECT_TRUE(given.emplace(e, row.value).second);
    ASSERT_EQ(given, expected) << round;
    std::vector<std::pair<Range, std::int64_t>> rows[2];
    table_.for_each([&](ArrayId array, Range r, std::int64_t v) { rows[array].emplace_back(r, v); });
    ASSERT_EQ(rows[0], rows[1]) << round;
  }
}

// A million failures of which none is like its neighbour are opened again by one statement.
TEST_F(RunTableTest, ManyPartsAtOnceCostLittleEach) {
  constexpr Element kParts = 2000;
  std::vector<Range> parts;
  for (Element i = 0; i < kParts; ++i) {
    table_.set(0, {2 * i, 2 * i}, 5);
    table_.set(0, {2 * i + 1, 2 * i + 1}, 4);
    parts.push_back({2 * i, 2 * i});
  }
  EXPECT_LT(instructions([&] { table_.clear(0, parts); }), 40 * static_cast<int>(kParts));
}

// It was quadratic: every change read all rows before it, or back to the last one of its state.
TEST_F(RunTableTest, AChangeCostsTheSameHoweverManyRowsThereAre) {
  const auto cost = [this](Element rows) {
    database_.exec("BEGIN; DELETE FROM t");
    for (Element i = 0; i < rows; ++i) table_.set(0, {2 * i, 2 * i}, i == 0 ? 3 : 1);
    const int changes = instructions([&] {
      table_.clear(0, {2 * rows - 2, 2 * rows - 2});
      table_.set(0, {2 * rows - 2, 2 * rows - 2}, 3);
      table_.set(0, {2 * rows - 2, 2 * rows - 2}, 1);
    });
    database_.exec("COMMIT");
    return changes;
  };
  const int few = cost(10);
  const int many = cost(1000);
  EXPECT_LE(many, few + few / 2);
}

}  // namespace
}  // namespace wflow::engine::store
