// SPDX-License-Identifier: Apache-2.0
// Finds and repairs damage in a database: for wflow doctor.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "engine/schedule/states.h"
#include "engine/store/impl.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

namespace {

constexpr std::array kCounted = {ElementState::done, ElementState::failed, ElementState::hard_failed,
                                 ElementState::skipped, ElementState::cancelled};

// True for a line of integrity_check about an index whose table is whole.
bool is_about_an_index(const std::string& line) {
  return line.find("missing from index") != std::string::npos ||
         line.starts_with("wrong # of entries in index") || line.starts_with("non-unique entry in index");
}

void check_pages(SQLite::Database& database, DatabaseReport& report) {
  SQLite::Statement check(database, "PRAGMA integrity_check");
  while (check.executeStep()) {
    const std::string line = check.getColumn(0).getString();
    if (line == "ok") continue;
    (is_about_an_index(line) ? report.indexes : report.damage).push_back(line);
  }
}

// Each count beside what the runs add up to.
void check_totals(SQLite::Database& database, DatabaseReport& report) {
  std::map<std::pair<std::int64_t, int>, std::int64_t> added_up;
  SQLite::Statement runs(database,
                         "SELECT array, state, SUM(last - first + 1) FROM runs GROUP BY array, state");
  while (runs.executeStep())
    added_up[{runs.getColumn(0).getInt64(), runs.getColumn(1).getInt()}] = runs.getColumn(2).getInt64();
  SQLite::Statement arrays(database,
                           "SELECT id, name, done, failed, hard_failed, skipped, cancelled FROM arrays");
  while (arrays.executeStep()) {
    for (std::size_t i = 0; i < kCounted.size(); ++i) {
      const auto found = added_up.find({arrays.getColumn(0).getInt64(), static_cast<int>(kCounted[i])});
      const std::int64_t runs_have = found == added_up.end() ? 0 : found->second;
      const std::int64_t recorded = arrays.getColumn(static_cast<int>(i) + 2).getInt64();
      if (recorded == runs_have) continue;
      report.counts.push_back(fmt::format("{} tasks of {} count as {}, and the record of each has {}",
                                          recorded, arrays.getColumn(1).getString(), name_of(kCounted[i]),
                                          runs_have));
    }
  }
}

std::uint64_t lost_commits(SQLite::Database& database, const std::filesystem::path& campaign) {
  const auto here = static_cast<std::uint64_t>(
      database.execAndGet("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'commits'").getInt64());
  const std::uint64_t acknowledged = CommitMark(campaign).read().value_or(0);
  return acknowledged > here ? acknowledged - here : 0;
}

// Finds rows that name tasks which do not exist; the two checks above do not find them.
void check_rows(const std::filesystem::path& campaign, DatabaseReport& report) {
  if (!report.sound()) return;
  try {
    Store(campaign).restore();
  } catch (const Error& error) {
    report.damage.emplace_back(error.what());
  }
}

}  // namespace

DatabaseReport examine_database(const std::filesystem::path& campaign) {
  DatabaseReport report;
  try {
    SQLite::Database database = open_database(campaign, {});
    check_pages(database, report);
    if (report.damage.empty()) {
      check_totals(database, report);
      report.lost_commits = lost_commits(database, campaign);
    }
  } catch (const SQLite::Exception& error) {
    report.damage.emplace_back(error.what());
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    report.damage.emplace_back(error.what());
  }
  check_rows(campaign, report);
  return report;
}

void mend_database(const std::filesystem::path& campaign) {
  try {
    SQLite::Database database = open_database(campaign, {});
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    database.exec("REINDEX");
    for (const ElementState state : kCounted) {
      database.exec(
          fmt::format("UPDATE arrays SET {} = (SELECT COALESCE(SUM(last - first + 1), 0) FROM runs WHERE "
                      "array = arrays.id AND state = {})",
                      name_of(state), static_cast<int>(state)));
    }
    transaction.commit();
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "mend", database_path(campaign));
  }
}

}  // namespace wflow::engine::store
