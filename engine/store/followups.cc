// SPDX-License-Identifier: Apache-2.0
// Campaigns that come after this one.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/store/impl.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

namespace {

constexpr std::string_view kHandedTo = "handed over to ";

// The value of the column `state`.
std::string state_text(const Followup& followup) {
  return followup.state == FollowupState::handed_over ? std::string(kHandedTo) + followup.handed_to
                                                      : std::string(name_of(followup.state));
}

void read_state(const std::string& text, Followup& followup) {
  if (text.starts_with(kHandedTo)) {
    followup.state = FollowupState::handed_over;
    followup.handed_to = text.substr(kHandedTo.size());
    return;
  }
  const auto state = followup_state(text);
  if (!state) throw Error(ExitCode::data, fmt::format("the record has a campaign in the state '{}'", text));
  followup.state = *state;
}

}  // namespace

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
      Followup& followup = followups.emplace_back();
      followup.id = select.getColumn(0).getInt64();
      followup.kind = select.getColumn(1).getString();
      followup.iteration = select.getColumn(2).getInt();
      followup.spec = select.getColumn(3).getString();
      followup.options = select.getColumn(4).getString();
      followup.directory = select.getColumn(5).getString();
      read_state(select.getColumn(6).getString(), followup);
      followup.exit_code = select.getColumn(7).getInt();
      followup.source = select.getColumn(8).getString();
      followup.created_s = select.getColumn(9).getDouble();
      followup.started_s = select.getColumn(10).getDouble();
      followup.ended_s = select.getColumn(11).getDouble();
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
    auto& select = impl_->statement("SELECT 1 FROM events WHERE type = ? AND array >= 0 LIMIT 1");
    select.bind(1, type);
    const bool found = select.executeStep();
    select.reset();  // a statement in progress would refuse a snapshot
    return found;
  });
}

}  // namespace wflow::engine::store
