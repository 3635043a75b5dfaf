// SPDX-License-Identifier: Apache-2.0
// Makes the record follow a new plan. Arrays get the new plan's numbers in every table. Elements that an
// array keeps stay; the record forgets the others as if they had never run. Keeps the history of removed
// arrays.
#include <algorithm>

#include "base/error.h"
#include "engine/monitor/missing_samples.h"
#include "engine/store/impl.h"

namespace wflow::engine::store {

namespace {

constexpr int kEpochShift = 40;  // engine/schedule/scheduler.cc: the epoch's place in a lease's number

// Tables with rows of elements that stay as the history of a removed array, ...
constexpr std::array kHistoryTables = {"failures", "events", "metrics", "task_usage"};
// ... and tables with its state, which are removed.
constexpr std::array kStates = {"runs", "floors", "attempts", "progress", "made", "missing"};

// Numbers that no array has while rows move.
constexpr std::int64_t kAway = std::int64_t{1} << 40;

bool keeps_numbers(const Takeover& takeover, std::uint64_t count) {
  if (takeover.arrays.size() < count) return false;
  for (std::size_t i = 0; i < takeover.arrays.size(); ++i) {
    const auto& from = takeover.arrays[i].from;
    if (i < count ? from != static_cast<ArrayId>(i) : from.has_value()) return false;
  }
  return true;
}

}  // namespace

std::string Store::aside() {
  return impl_->reading([&] {
    return impl_->database.execAndGet("SELECT COALESCE(max(value), '') FROM meta WHERE key = 'aside'")
        .getString();
  });
}

std::uint64_t Store::study() {
  return impl_->reading([&] {
    auto& select = impl_->statement("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'study'");
    const std::uint64_t number =
        select.executeStep() ? static_cast<std::uint64_t>(select.getColumn(0).getInt64()) : 1;
    select.reset();
    return number;
  });
}

void Store::take(const specs::Plan& plan, const Takeover& takeover) {
  WFLOW_CHECK(takeover.arrays.size() == plan.array_count());
  impl_->writing([&] {
    const auto count =
        static_cast<std::uint64_t>(impl_->database.execAndGet("SELECT count(*) FROM arrays").getInt64());
    if (!keeps_numbers(takeover, count)) impl_->renumber(takeover, count);
    impl_->database.exec(
        "CREATE TEMP TABLE IF NOT EXISTS opened (array INTEGER NOT NULL, first INTEGER NOT NULL, last "
        "INTEGER NOT NULL, "
        "PRIMARY KEY (array, first)) WITHOUT ROWID; DELETE FROM temp.opened");
    std::vector<std::uint64_t> before(plan.array_count());
    impl_->resize(plan, takeover, before);
    for (ArrayId array = 0; array < plan.array_count(); ++array) {
      if (!takeover.arrays[array].from) continue;
      const std::uint64_t is = plan.steps()[plan.step_of(array)].elements;
      if (before[array] > is) impl_->retire_beyond(array, before[array], is);
      impl_->open_again(array, takeover.arrays[array].open, before[array], is);
      if (takeover.arrays[array].judge_skipped)
        impl_->database.exec("DELETE FROM runs WHERE array = " + std::to_string(array) +
                             " AND state = " + std::to_string(static_cast<int>(ElementState::skipped)));
    }
    impl_->forget_opened();
    if (takeover.forget_made) impl_->database.exec("DELETE FROM made");
    // A step that comes back later begins with its own figures.
    impl_->database.exec("DELETE FROM usage WHERE step NOT IN (SELECT step FROM arrays)");
    // From the runs themselves; only what has any.
    for (const ElementState state : {ElementState::done, ElementState::failed, ElementState::hard_failed,
                                     ElementState::skipped, ElementState::cancelled}) {
      const std::string name(name_of(state));
      impl_->database.exec(
          "UPDATE arrays SET " + name +
          " = COALESCE((SELECT sum(last - first + 1) FROM runs WHERE array = arrays.id AND state = " +
          std::to_string(static_cast<int>(state)) + "), 0)");
    }
    // Whatever an earlier lease brings, with numbers of arrays that are others now, is late.
    const std::int64_t epoch =
        impl_->database.execAndGet("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'epoch'").getInt64();
    const std::int64_t floor = (epoch + 1) << kEpochShift;
    impl_->database.exec("INSERT OR REPLACE INTO floors SELECT id, 0, elements - 1, " +
                         std::to_string(floor) +
                         " FROM arrays WHERE elements > done + failed + hard_failed + skipped + cancelled "
                         "AND NOT EXISTS (SELECT 1 "
                         "FROM floors f WHERE f.array = arrays.id)");
    std::vector<std::pair<ArrayId, std::uint64_t>> others;
    SQLite::Statement open(
        impl_->database,
        "SELECT id, elements FROM arrays WHERE elements > done + failed + hard_failed + skipped + cancelled "
        "AND NOT EXISTS (SELECT 1 FROM floors f WHERE f.array = arrays.id AND f.first = 0 AND f.last = "
        "arrays.elements "
        "- 1 AND f.lease = ?)");
    open.bind(1, floor);
    while (open.executeStep())
      others.emplace_back(open.getColumn(0).getUInt(),
                          static_cast<std::uint64_t>(open.getColumn(1).getInt64()));
    open.reset();
    for (const auto& [array, elements] : others) impl_->floors.set(array, {0, elements - 1}, floor);
    for (const SourcesRow& row : takeover.sources) impl_->insert_sources(row);
    execute(impl_->statement("INSERT OR REPLACE INTO meta VALUES ('study', ?)"),
            std::to_string(takeover.study));
    execute(impl_->statement("INSERT OR REPLACE INTO meta VALUES ('aside', ?)"), takeover.aside);
    for (const HistoryRow& row : takeover.history) impl_->write_history(row);
  });
  impl_->usage.reset();  // it knows arrays by their old numbers
}

// In two passes: no row ever meets another one's number.
void Store::Impl::renumber(const Takeover& takeover, std::uint64_t count) {
  database.exec("CREATE TEMP TABLE IF NOT EXISTS moved (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)");
  database.exec("DELETE FROM moved");
  std::vector<std::int64_t> to(count, -1);
  for (std::size_t i = 0; i < takeover.arrays.size(); ++i) {
    if (takeover.arrays[i].from) to.at(*takeover.arrays[i].from) = static_cast<std::int64_t>(i);
  }
  {
    SQLite::Statement insert(database, "INSERT INTO moved VALUES (?, ?)");
    SQLite::Statement retire(database,
                             "INSERT INTO removed_arrays (step, name, kind, elements, done, failed, study) "
                             "SELECT step, name, kind, elements, "
                             "done, failed + hard_failed, ? FROM arrays WHERE id = ?");
    for (std::uint64_t old = 0; old < count; ++old) {
      std::int64_t number = to[old];
      if (number < 0) {
        execute(retire, signed_of(takeover.study), signed_of(old));
        retire.reset();
        number = -database.getLastInsertRowid();
      }
      if (number == signed_of(old)) continue;
      execute(insert, signed_of(old), number);
      insert.reset();
    }
  }
  const std::string away = std::to_string(kAway);
  for (const char* table : kStates)
    database.exec(std::string("DELETE FROM ") + table +
                  " WHERE array IN (SELECT old FROM moved WHERE new < 0)");
  const auto move = [&](const std::string& table, const std::string& column) {
    database.exec("UPDATE " + table + " SET " + column + " = " + away +
                  " + (SELECT new FROM moved WHERE old = " + column + ") WHERE " + column +
                  " IN (SELECT old FROM moved)");
    database.exec("UPDATE " + table + " SET " + column + " = " + column + " - " + away + " WHERE " + column +
                  " > " + away + " / 2");
  };
  for (const char* table : kStates) move(table, "array");
  for (const char* table : kHistoryTables) move(table, "array");
  database.exec("DELETE FROM arrays WHERE id IN (SELECT old FROM moved WHERE new < 0)");
  move("arrays", "id");
  database.exec("DROP TABLE moved");
}

// The arrays as the plan has them. `before`: how many elements each had.
void Store::Impl::resize(const specs::Plan& plan, const Takeover& takeover,
                         std::vector<std::uint64_t>& before) {
  SQLite::Statement had(database, "SELECT id, elements FROM arrays");
  while (had.executeStep())
    before.at(had.getColumn(0).getUInt()) = static_cast<std::uint64_t>(had.getColumn(1).getInt64());
  had.reset();
  SQLite::Statement insert(database,
                           "INSERT INTO arrays (id, step, name, kind, elements) VALUES (?, ?, ?, ?, ?)");
  SQLite::Statement update(database, "UPDATE arrays SET elements = ? WHERE id = ?");
  SQLite::Statement reads(database, "UPDATE arrays SET source = ? WHERE id = ?");
  database.exec("UPDATE arrays SET source = NULL WHERE source IS NOT NULL");
  conversions.reset();
  for (ArrayId array = 0; array < plan.array_count(); ++array) {
    const specs::PlannedStep& step = plan.steps()[plan.step_of(array)];
    if (!takeover.arrays[array].from) {
      execute(insert, array, step.name, plan.array_name(array), std::string(specs::name_of(step.kind)),
              signed_of(step.elements));
      insert.reset();
    } else if (before[array] != step.elements) {
      execute(update, signed_of(step.elements), array);
      update.reset();
    }
    if (const auto source = converted_array(plan, array)) {
      execute(reads, *source, array);
      reads.reset();
    }
  }
}

// Moves the history of removed elements to a removed array of their own.
void Store::Impl::retire_beyond(ArrayId array, std::uint64_t was, std::uint64_t is) {
  SQLite::Statement retire(
      database,
      "INSERT INTO removed_arrays (step, name, kind, elements, done, failed, study) SELECT step, name, kind, "
      "?, (SELECT "
      "COALESCE(sum(last - max(first, ?2) + 1), 0) FROM runs WHERE array = ?3 AND last >= ?2 AND state = "
      "?4), 0, (SELECT "
      "CAST(value AS INTEGER) + 1 FROM meta WHERE key = 'study') FROM arrays WHERE id = ?3");
  SQLite::bind(retire, signed_of(was - is), signed_of(is), array, static_cast<int>(ElementState::done));
  retire.exec();
  const std::int64_t id = database.getLastInsertRowid();
  for (const char* table : {"failures", "events", "metrics"}) {
    SQLite::Statement move(
        database, std::string("UPDATE ") + table + " SET array = ? WHERE array = ? AND element >= ?");
    SQLite::bind(move, -id, array, signed_of(is));
    move.exec();
  }
  for (const char* table : {"attempts", "progress", "missing"}) {
    SQLite::Statement erase(database,
                            std::string("DELETE FROM ") + table + " WHERE array = ? AND element >= ?");
    SQLite::bind(erase, array, signed_of(is));
    erase.exec();
  }
  for (RunTable* table : {&runs, &floors, &made}) table->clear(array, {is, was - 1});
}

// In one pass over each table, however many parts are open.
void Store::Impl::forget_opened() {
  for (const char* table : {"attempts", "progress", "metrics", "events", "missing"}) {
    database.exec(std::string("DELETE FROM ") + table +
                  " WHERE (SELECT o.last FROM temp.opened o WHERE o.array = " + table +
                  ".array AND o.first <= " + table + ".element ORDER BY o.first DESC LIMIT 1) >= element");
  }
}

// Resets elements as if they had never run. Failures stay, as with a retry.
void Store::Impl::open_again(ArrayId array, const std::vector<Range>& parts, std::uint64_t was,
                             std::uint64_t is) {
  if (parts.empty() || was == 0) return;
  runs.clear(array, parts);
  made.clear(array, parts);
  std::uint64_t open = 0;
  for (const Range& part : parts) {
    if (part.first >= std::min(was, is)) break;
    open += std::min(part.last, std::min(was, is) - 1) - part.first + 1;
    execute(statement("INSERT INTO temp.opened VALUES (?, ?, ?)"), array, signed_of(part.first),
            signed_of(part.last));
  }
  // Nothing of the old times is left: a new command has new ones.
  if (open >= std::min(was, is))
    execute(statement("UPDATE arrays SET timed = 0, duration_sum = 0, duration_square_sum = 0 WHERE id = ?"),
            array);
}

}  // namespace wflow::engine::store
