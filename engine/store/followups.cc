// SPDX-License-Identifier: Apache-2.0
// Campaigns that come after this one.
#include "engine/store/database.h"
#include "engine/store/impl.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

void Store::Impl::write_followup(const Followup& followup) {
  auto& insert = statement(
      "INSERT OR IGNORE INTO followups (kind, iteration, spec, options, directory, state, exit_code, source, "
      "created, started, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULLIF(?, 0), NULLIF(?, 0))");
  SQLite::bind(insert, followup.kind, followup.iteration, followup.spec, followup.options, followup.directory,
               followup.state, followup.exit_code, followup.source, followup.created_s, followup.started_s,
               followup.ended_s);
  insert.exec();
}

std::vector<Followup> Store::followups() {
  std::vector<Followup> followups;
  try {
    auto& select = impl_->statement(
        "SELECT id, kind, iteration, spec, options, directory, state, exit_code, source, created, started, "
        "ended FROM followups ORDER BY id");
    while (select.executeStep()) {
      followups.push_back({select.getColumn(0).getInt64(), select.getColumn(1).getString(),
                           select.getColumn(2).getInt(), select.getColumn(3).getString(),
                           select.getColumn(4).getString(), select.getColumn(5).getString(),
                           select.getColumn(6).getString(), select.getColumn(7).getInt(),
                           select.getColumn(8).getString(), select.getColumn(9).getDouble(),
                           select.getColumn(10).getDouble(), select.getColumn(11).getDouble()});
    }
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "read", database_path(impl_->campaign));
  }
  return followups;
}

void Store::Impl::write_now(SQLite::Statement& statement) {
  SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
  statement.exec();
  for (auto& [sql, other] : statements) other.tryReset();
  transaction.commit();
}

void Store::update_followup(const Followup& followup) {
  try {
    auto& update = impl_->statement(
        "UPDATE followups SET directory = ?, state = ?, exit_code = ?, started = NULLIF(?, 0), ended = "
        "NULLIF(?, 0) WHERE id = ?");
    SQLite::bind(update, followup.directory, followup.state, followup.exit_code, followup.started_s,
                 followup.ended_s, followup.id);
    impl_->write_now(update);
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "write", database_path(impl_->campaign));
  }
}

void Store::set_iterations(const std::string& text) {
  try {
    auto& insert = impl_->statement("INSERT OR REPLACE INTO meta VALUES ('iterations', ?)");
    insert.bind(1, text);
    impl_->write_now(insert);
  } catch (const SQLite::Exception& error) {
    throw_database_error(error, "write", database_path(impl_->campaign));
  }
}

bool Store::has_event(const std::string& type) {
  auto& select = impl_->statement("SELECT 1 FROM events WHERE type = ? LIMIT 1");
  select.bind(1, type);
  return select.executeStep();
}

}  // namespace wflow::engine::store
