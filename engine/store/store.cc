// SPDX-License-Identifier: Apache-2.0
// What the store writes, and what it gives back to a coordinator that starts. Reports are in records.cc.
#include "engine/store/store.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"
#include "engine/store/database.h"
#include "engine/store/impl.h"
#include "engine/store/schema.h"

namespace wflow::engine::store {

namespace {

constexpr const char* kReasons[] = {"exited",     "signalled",   "timed_out", "not_started",
                                    "bad_output", "worker_lost", "cancelled"};

void set_meta(SQLite::Database& database, const std::string& key, const std::string& value) {
  SQLite::Statement insert(database, "INSERT OR REPLACE INTO meta VALUES (?, ?)");
  insert.bind(1, key);
  insert.bind(2, value);
  insert.exec();
}

void fill_new_database(SQLite::Database& database, const specs::Plan& plan) {
  SQLite::Transaction transaction(database);
  database.exec(kSchema);
  database.exec(fmt::format("PRAGMA user_version={}", kSchemaVersion));
  set_meta(database, "name", plan.study().name);
  set_meta(database, "wflow_version", kVersion);
  set_meta(database, "epoch", "0");
  SQLite::Statement state(database, "INSERT INTO states VALUES (?, ?)");
  for (std::size_t i = 0; i < kElementStates; ++i) {
    state.bind(1, static_cast<int>(i));
    state.bind(2, std::string(name_of(static_cast<ElementState>(i))));
    state.exec();
    state.reset();
  }
  SQLite::Statement insert(database,
                           "INSERT INTO arrays (id, step, name, kind, elements) VALUES (?, ?, ?, ?, ?)");
  for (ArrayId array = 0; array < plan.array_count(); ++array) {
    const specs::PlannedStep& step = plan.steps()[plan.step_of(array)];
    insert.bind(1, static_cast<std::int64_t>(array));
    insert.bind(2, step.name);
    insert.bind(3, plan.array_name(array));
    insert.bind(4, std::string(specs::name_of(step.kind)));
    insert.bind(5, static_cast<std::int64_t>(step.elements));
    insert.exec();
    insert.reset();
  }
  transaction.commit();
}

}  // namespace

std::string reason_name(wire::EndReason reason) {
  return kReasons[static_cast<std::size_t>(reason)];
}

int reason_from_name(std::string_view name) {
  const auto* const at = std::find(std::begin(kReasons), std::end(kReasons), name);
  return static_cast<int>(at - std::begin(kReasons));
}

void Store::create(const std::filesystem::path& campaign, const specs::Plan& plan) {
  const std::filesystem::path path = database_path(campaign);
  make_directories(path.parent_path());
  DurableFile file(path);
  try {
    SQLite::Database database(file.temporary().string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    database.exec("PRAGMA journal_mode=MEMORY; PRAGMA auto_vacuum=NONE");
    fill_new_database(database, plan);
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "create", path);
  }
  file.publish();
}

Store::Store(const std::filesystem::path& campaign)
    : impl_(std::make_unique<Impl>(Impl{campaign, open_database(database_path(campaign)), {}})) {}

Store::~Store() = default;

SQLite::Statement& Store::Impl::statement(const char* sql) {
  const auto found = statements.find(sql);
  if (found != statements.end()) {
    found->second.reset();
    return found->second;
  }
  return statements
      .emplace(std::piecewise_construct, std::forward_as_tuple(sql), std::forward_as_tuple(database, sql))
      .first->second;
}

std::uint64_t Store::next_epoch() {
  try {
    SQLite::Transaction transaction(impl_->database);
    impl_->database.exec("UPDATE meta SET value = value + 1 WHERE key = 'epoch'");
    transaction.commit();
    return static_cast<std::uint64_t>(
        impl_->database.execAndGet("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'epoch'").getInt64());
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "write", database_path(impl_->campaign));
  }
}

Restored Store::restore() {
  Restored restored;
  try {
    auto& runs = impl_->statement("SELECT array, first, last, state FROM runs");
    while (runs.executeStep()) {
      restored.ends.push_back({static_cast<ArrayId>(runs.getColumn(0).getUInt()),
                               {static_cast<Element>(runs.getColumn(1).getInt64()),
                                static_cast<Element>(runs.getColumn(2).getInt64())},
                               static_cast<ElementState>(runs.getColumn(3).getInt())});
    }
    auto& attempts = impl_->statement("SELECT array, element, next_attempt, restart FROM attempts");
    while (attempts.executeStep()) {
      restored.attempts.push_back({static_cast<ArrayId>(attempts.getColumn(0).getUInt()),
                                   static_cast<Element>(attempts.getColumn(1).getInt64()),
                                   attempts.getColumn(2).getUInt(), attempts.getColumn(3).getInt() != 0});
    }
    auto& durations =
        impl_->statement("SELECT id, timed, duration_sum, duration_square_sum FROM arrays WHERE timed > 0");
    while (durations.executeStep()) {
      ArrayProgress progress;
      progress.timed = static_cast<std::uint64_t>(durations.getColumn(1).getInt64());
      progress.duration_sum_s = durations.getColumn(2).getDouble();
      progress.duration_square_sum = durations.getColumn(3).getDouble();
      restored.totals.push_back({static_cast<ArrayId>(durations.getColumn(0).getUInt()), progress});
    }
    auto& workers = impl_->statement(
        "SELECT id, host, worker_group, pid, cores, gpus, joined FROM workers WHERE ended IS NULL");
    while (workers.executeStep()) {
      restored.workers.push_back({workers.getColumn(0).getString(), workers.getColumn(1).getString(),
                                  workers.getColumn(2).getString(), workers.getColumn(3).getInt64(),
                                  workers.getColumn(4).getInt(), workers.getColumn(5).getInt(),
                                  workers.getColumn(6).getDouble()});
    }
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "read", database_path(impl_->campaign));
  }
  return restored;
}

namespace {

template <typename... Values>
void execute(SQLite::Statement& statement, const Values&... values) {
  SQLite::bind(statement, values...);
  statement.exec();
}

std::int64_t signed_of(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}

// Neighbours that ended in one batch become one write. Order matters only where an element is opened again.
std::vector<RecordEnd> merged(std::vector<RecordEnd> ends) {
  const bool reopens =
      std::any_of(ends.begin(), ends.end(), [](const auto& e) { return !has_ended(e.state); });
  if (reopens) return ends;
  std::sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) {
    return std::pair(a.array, a.range.first) < std::pair(b.array, b.range.first);
  });
  std::vector<RecordEnd> result;
  for (const RecordEnd& end : ends) {
    const bool joins = !result.empty() && result.back().array == end.array &&
                       result.back().state == end.state && result.back().range.last + 1 == end.range.first;
    joins ? void(result.back().range.last = end.range.last) : result.push_back(end);
  }
  return result;
}

}  // namespace

// Removes [first, last] from the rows of the array; rows that stick out are cut.
void Store::Impl::cut_runs(ArrayId array, Range range) {
  auto& select =
      statement("SELECT first, last, state FROM runs WHERE array = ? AND first <= ? AND last >= ?");
  SQLite::bind(select, array, signed_of(range.last), signed_of(range.first));
  std::vector<std::pair<Range, int>> rows;
  while (select.executeStep()) {
    rows.push_back({{static_cast<Element>(select.getColumn(0).getInt64()),
                     static_cast<Element>(select.getColumn(1).getInt64())},
                    select.getColumn(2).getInt()});
  }
  for (const auto& [row, state] : rows) {
    execute(statement("DELETE FROM runs WHERE array = ? AND first = ?"), array, signed_of(row.first));
    if (row.first < range.first) insert_run(array, {row.first, range.first - 1}, state);
    if (row.last > range.last) insert_run(array, {range.last + 1, row.last}, state);
  }
}

void Store::Impl::insert_run(ArrayId array, Range range, int state) {
  execute(statement("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)"), array, signed_of(range.first),
          signed_of(range.last), state);
}

void Store::Impl::write_end(const RecordEnd& end) {
  const int state = static_cast<int>(end.state);
  if (!has_ended(end.state)) {
    cut_runs(end.array, end.range);
    // It will run again: what it failed of is history, not its end.
    execute(statement("UPDATE failures SET final = 0 WHERE array = ? AND element BETWEEN ? AND ? AND final"),
            end.array, signed_of(end.range.first), signed_of(end.range.last));
    return;
  }
  Range range = end.range;
  auto& before = statement(
      "SELECT first, last FROM runs WHERE array = ? AND first < ? AND state = ? ORDER BY first DESC LIMIT 1");
  SQLite::bind(before, end.array, signed_of(range.first), state);
  if (before.executeStep() && static_cast<Element>(before.getColumn(1).getInt64()) + 1 == range.first) {
    range.first = static_cast<Element>(before.getColumn(0).getInt64());
  }
  auto& after = statement("SELECT last FROM runs WHERE array = ? AND first = ? AND state = ?");
  SQLite::bind(after, end.array, signed_of(range.last + 1), state);
  if (after.executeStep()) {
    const auto last = static_cast<Element>(after.getColumn(0).getInt64());
    execute(statement("DELETE FROM runs WHERE array = ? AND first = ?"), end.array,
            signed_of(range.last + 1));
    range.last = last;
  }
  before.reset();
  insert_run(end.array, range, state);
  execute(statement("DELETE FROM attempts WHERE array = ? AND element BETWEEN ? AND ?"), end.array,
          signed_of(end.range.first), signed_of(end.range.last));
}

void Store::Impl::write_failure(const RecordFailure& row) {
  const wire::Outcome& outcome = row.outcome;
  execute(statement("INSERT INTO failures (array, element, attempt, reason, exit_code, started, duration, "
                    "worker, final, "
                    "detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
          outcome.array, signed_of(outcome.element), outcome.attempt, reason_name(outcome.reason),
          outcome.exit_code, outcome.started_s, outcome.duration_s, row.worker, row.final ? 1 : 0,
          outcome.detail);
  if (row.final) return;
  execute(statement("INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?)"), outcome.array,
          signed_of(outcome.element), row.next_attempt, row.restart ? 1 : 0);
}

void Store::Impl::write_event(const wire::TaskEvent& event) {
  const nlohmann::json body = nlohmann::json::parse(event.line, nullptr, false);
  if (!body.is_object()) return;  // a task may write anything; what is no JSON object is not an event
  const auto text = [&](const char* key) {
    const auto at = body.find(key);
    return at != body.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    const auto at = body.find(key);
    return at != body.end() && at->is_number() ? at->get<double>() : 0.0;
  };
  const std::string type = text("type");
  if (type == "progress") {
    execute(statement("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?, ?)"), event.array,
            signed_of(event.element), event.time_s, static_cast<std::int64_t>(number("done")),
            static_cast<std::int64_t>(number("total")), text("unit"));
  } else if (type == "metric") {
    execute(statement("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?, ?, ?, ?)"), event.array,
            signed_of(event.element), text("name"), static_cast<std::int64_t>(number("step")),
            static_cast<std::int64_t>(number("epoch")), number("value"), event.time_s, event.attempt);
  } else {
    execute(
        statement("INSERT INTO events (time, array, element, attempt, type, body) VALUES (?, ?, ?, ?, ?, ?)"),
        event.time_s, event.array, signed_of(event.element), event.attempt, type, event.line);
  }
}

void Store::Impl::write(const Batch& batch) {
  for (const WorkerRow& worker : batch.workers_joined) {
    execute(statement("INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL)"), worker.id,
            worker.host, worker.pid, worker.group, worker.cores, worker.gpus, worker.joined_s);
  }
  for (const RecordEnd& end : merged(batch.ends)) write_end(end);
  for (const RecordFailure& failure : batch.failures) write_failure(failure);
  for (const wire::TaskEvent& event : batch.events) write_event(event);
  for (const Followup& followup : batch.followups) write_followup(followup);
  for (const auto& [array, progress] : batch.totals) {
    const auto of = [&](ElementState state) {
      return signed_of(progress.counts[static_cast<std::size_t>(state)]);
    };
    execute(
        statement(
            "UPDATE arrays SET timed = ?, duration_sum = ?, duration_square_sum = ?, done = ?, failed = ?, "
            "hard_failed = ?, skipped = ?, cancelled = ? WHERE id = ?"),
        signed_of(progress.timed), progress.duration_sum_s, progress.duration_square_sum,
        of(ElementState::done), of(ElementState::failed), of(ElementState::hard_failed),
        of(ElementState::skipped), of(ElementState::cancelled), array);
  }
  for (const Batch::WorkerEnd& end : batch.workers_ended) {
    execute(statement("UPDATE workers SET ended = ?, reason = ? WHERE id = ?"), end.time_s, end.reason,
            end.id);
  }
  for (const HistoryRow& row : batch.history) {
    execute(statement("INSERT INTO history (time, kind, text) VALUES (?, ?, ?)"), row.time_s, row.kind,
            row.text);
  }
}

void Store::commit(const Batch& batch) {
  if (batch.empty()) return;
  try {
    SQLite::Transaction transaction(impl_->database, SQLite::TransactionBehavior::IMMEDIATE);
    impl_->write(batch);
    for (auto& [sql, statement] : impl_->statements)
      statement.tryReset();  // a pending read would block the commit
    transaction.commit();
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "write", database_path(impl_->campaign));
  }
}

}  // namespace wflow::engine::store
