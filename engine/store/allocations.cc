// SPDX-License-Identifier: Apache-2.0
// Batch allocations in the database.
#include <algorithm>

#include "base/text.h"
#include "engine/store/impl.h"

namespace wflow::engine::store {

namespace {

constexpr const char* kWrite =
    "INSERT OR REPLACE INTO allocations (token, id, pool, scheduler, nodes, walltime, state, how, by_hand, "
    "restarts, "
    "created, started, ends, ended, reason, never_clears, node_names) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
    "?, ?, ?, ?, ?, "
    "?, ?)";
constexpr const char* kRead =
    "SELECT token, id, pool, scheduler, nodes, walltime, state, how, by_hand, restarts, created, started, "
    "ends, ended, "
    "reason, never_clears, node_names FROM allocations ORDER BY created, token";

// The value of this name; the last one for an unknown name.
template <typename E>
E value_named(const std::string& name, E last) {
  for (int i = 0; i < static_cast<int>(last); ++i) {
    if (batch::name_of(static_cast<E>(i)) == name) return static_cast<E>(i);
  }
  return last;
}

}  // namespace

void Store::Impl::write_allocation(const batch::Allocation& row) {
  execute(statement(kWrite), row.token, row.id, row.pool, row.scheduler, row.nodes,
          stored_duration(row.walltime_s), std::string(batch::name_of(row.state)),
          std::string(batch::name_of(row.end)), row.by_hand ? 1 : 0, row.restarts, stored_time(row.created_s),
          stored_time(row.started_s), stored_time(row.ends_s), stored_time(row.ended_s), row.reason,
          row.never_clears, text::join(row.node_names, "\n"));
}

std::vector<batch::Allocation> Store::Impl::read_allocations() {
  auto& select = statement(kRead);
  std::vector<batch::Allocation> rows;
  while (select.executeStep()) {
    const auto text_at = [&](int column) { return select.getColumn(column).getString(); };
    const auto real_at = [&](int column) { return select.getColumn(column).getDouble(); };
    batch::Allocation& row = rows.emplace_back();
    row.token = text_at(0);
    row.id = text_at(1);
    row.pool = text_at(2);
    row.scheduler = text_at(3);
    row.nodes = select.getColumn(4).getInt();
    row.walltime_s = real_at(5);
    row.state = value_named(text_at(6), batch::AllocationState::ended);
    row.end = value_named(text_at(7), batch::JobEnd::cancelled);
    row.by_hand = select.getColumn(8).getInt() != 0;
    row.restarts = select.getColumn(9).getInt();
    row.created_s = real_at(10);
    row.started_s = real_at(11);
    row.ends_s = real_at(12);
    row.ended_s = real_at(13);
    row.reason = text_at(14);
    row.never_clears = text_at(15);
    if (const std::string names = text_at(16); !names.empty()) row.node_names = text::split(names, '\n');
  }
  return rows;
}

std::vector<batch::Allocation> Store::allocations() {
  return impl_->reading([&] { return impl_->read_allocations(); });
}

}  // namespace wflow::engine::store
