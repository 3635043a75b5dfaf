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
               state_text(followup), followup.exit_code, followup.source, stored_time(followup.created_s),
               stored_time(followup.started_s), stored_time(followup.ended_s));
  insert.exec();
}

std::vector<Followup> Store::followups() {
  return impl_->reading([&] {
    std::vector<Followup> followups;
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
    return followups;
  });
}

void Store::update_followup(const Followup& followup) {
  impl_->writing([&] {
    execute(impl_->statement(
                "UPDATE followups SET directory = ?, state = ?, exit_code = ?, started = NULLIF(?, 0), "
                "ended = NULLIF(?, 0) WHERE id = ?"),
            followup.directory, state_text(followup), followup.exit_code, stored_time(followup.started_s),
            stored_time(followup.ended_s), followup.id);
  });
}

void Store::set_iterations(const std::string& text) {
  impl_->writing(
      [&] { execute(impl_->statement("INSERT OR REPLACE INTO meta VALUES ('iterations', ?)"), text); });
}

bool Store::has_event(const std::string& type) {
  return impl_->reading([&] {
    auto& select = impl_->statement("SELECT 1 FROM events WHERE type = ? LIMIT 1");
    select.bind(1, type);
    return select.executeStep();
  });
}

}  // namespace wflow::engine::store
