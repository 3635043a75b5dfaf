// SPDX-License-Identifier: Apache-2.0
// Making a database, opening it, and its transactions. What they write is in writes.cc.
#include "engine/store/store.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/program_file.h"
#include "engine/store/impl.h"
#include "engine/store/schema.h"

namespace wflow::engine::store {

namespace {

constexpr const char* kReasons[] = {"exited",      "signalled", "timed_out",     "not_started", "bad_output",
                                    "worker_lost", "cancelled", "out_of_memory", "walltime",    "node",
                                    "preempted",   "launcher",  "disk",          "stalled"};
static_assert(std::size(kReasons) == static_cast<std::size_t>(kLastEndReason) + 1);

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
  set_meta(database, "commits", "0");
  set_meta(database, "study", "1");
  SQLite::Statement state(database, "INSERT INTO states VALUES (?, ?)");
  for (std::size_t i = 0; i < kElementStates; ++i) {
    state.bind(1, static_cast<int>(i));
    state.bind(2, std::string(name_of(static_cast<ElementState>(i))));
    state.exec();
    state.reset();
  }
  SQLite::Statement insert(
      database, "INSERT INTO arrays (id, step, name, kind, elements, source) VALUES (?, ?, ?, ?, ?, ?)");
  for (ArrayId array = 0; array < plan.array_count(); ++array) {
    const specs::PlannedStep& step = plan.steps()[plan.step_of(array)];
    insert.bind(1, static_cast<std::int64_t>(array));
    insert.bind(2, step.name);
    insert.bind(3, plan.array_name(array));
    insert.bind(4, std::string(specs::name_of(step.kind)));
    insert.bind(5, static_cast<std::int64_t>(step.elements));
    insert.bind(6);
    if (const auto source = converted_array(plan, array)) insert.bind(6, static_cast<std::int64_t>(*source));
    insert.exec();
    insert.reset();
  }
  transaction.commit();
}

// By its own journal: a VFS renames no files. A crash in the middle leaves a database without tables.
void create_in_place(const std::filesystem::path& path, const specs::Plan& plan, const std::string& vfs) {
  SQLite::Database database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, 0, vfs);
  database.exec("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=FULL");
  fill_new_database(database, plan);
}

}  // namespace

std::string reason_name(wire::EndReason reason) {
  return kReasons[static_cast<std::size_t>(reason)];
}

int reason_from_name(std::string_view name) {
  const auto* const at = std::find(std::begin(kReasons), std::end(kReasons), name);
  return static_cast<int>(at - std::begin(kReasons));
}

void Store::create(const std::filesystem::path& campaign, const specs::Plan& plan,
                   const DatabaseOptions& options) {
  const std::filesystem::path path = database_path(campaign);
  try {
    if (!options.vfs.empty()) return create_in_place(path, plan, options.vfs);
    make_private_folder(path.parent_path());
    CommitMark(campaign).write(0);  // that of an earlier database is no measure of this one
    DurableFile file(path);
    {
      SQLite::Database database(file.temporary().string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
      database.exec("PRAGMA journal_mode=MEMORY; PRAGMA auto_vacuum=NONE");
      fill_new_database(database, plan);
    }
    file.publish();
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "create", path);
  }
}

Store::Impl::Impl(const std::filesystem::path& campaign_, const DatabaseOptions& options)
    : campaign(campaign_),
      database(open_database(campaign, options)),
      runs(database, "runs", "state"),
      floors(database, "floors", "lease"),
      made(database, "made", "sources"),
      lock(options.lock) {
  if (options.vfs.empty()) mark.emplace(campaign);
}

Store::Store(const std::filesystem::path& campaign, const DatabaseOptions& options) {
  try {
    impl_ = std::make_unique<Impl>(campaign, options);
    impl_->check_mark(options.accept_loss);
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "open", database_path(campaign));
  }
}

Store::~Store() {
  close();
}

// SQLite writes the log into the database when the last connection closes, and removes it. Where locks do not
// reach another host, the coordinator there uses both: one that has lost the campaign must not touch them.
void Store::close() {
  if (!impl_) return;
  try {
    if (impl_->lock != nullptr) impl_->lock->check();
  } catch (const Error&) {
    ::sqlite3_db_config(impl_->database.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  }
  impl_.reset();
}

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

void Store::Impl::reset_statements() {
  for (auto& [sql, statement] : statements) statement.tryReset();
  runs.reset();
  floors.reset();
  made.reset();
}

std::uint64_t Store::Impl::commits() {
  return static_cast<std::uint64_t>(
      database.execAndGet("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'commits'").getInt64());
}

std::uint64_t Store::Impl::count_commit() {
  auto& update =
      statement("UPDATE meta SET value = value + 1 WHERE key = 'commits' RETURNING CAST(value AS INTEGER)");
  if (!update.executeStep()) throw Error(ExitCode::data, "the database counts no commits: it is damaged");
  return static_cast<std::uint64_t>(update.getColumn(0).getInt64());
}

// Fewer commits than were acknowledged: what they recorded would run again, so that is not for us to decide.
void Store::Impl::check_mark(bool accept_loss) {
  if (!mark) return;
  const std::uint64_t here = commits();
  const std::uint64_t acknowledged = mark->read().value_or(0);
  if (here >= acknowledged) {
    if (here > acknowledged) mark->write(here);  // killed between a commit and its mark
    return;
  }
  const std::uint64_t lost = acknowledged - here;
  if (!accept_loss) {
    throw Error(ExitCode::data,
                fmt::format("{} lacks the last {} of {} commits: its write-ahead log (campaign.db-wal) was "
                            "damaged or removed, or an older copy of the database was put in its place; put "
                            "the newer files back, or let the finished tasks that they recorded run again "
                            "with `wflow resume --accept-loss {}`",
                            database_path(campaign).string(), lost, acknowledged, campaign.string()));
  }
  writing([&] {
    execute(statement("UPDATE meta SET value = ? WHERE key = 'commits'"), signed_of(acknowledged));
    write_history({unix_now_s(), "note",
                   fmt::format("the last {} of {} commits were lost; what they recorded runs again "
                               "(--accept-loss)",
                               lost, acknowledged)});
  });
}

std::uint64_t Store::next_epoch() {
  std::uint64_t epoch = 0;
  impl_->writing([&] {
    auto& update = impl_->statement(
        "UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING CAST(value AS INTEGER)");
    if (!update.executeStep()) throw Error(ExitCode::data, "the database knows no epoch: it is damaged");
    epoch = static_cast<std::uint64_t>(update.getColumn(0).getInt64());
    execute(impl_->statement("INSERT OR IGNORE INTO meta VALUES ('place:' || ?, '')"),
            impl_->campaign.string());
  });
  return epoch;
}

void Store::commit(const Batch& batch) {
  if (batch.empty()) return;
  impl_->writing([&] { impl_->write(batch); });
}

}  // namespace wflow::engine::store
