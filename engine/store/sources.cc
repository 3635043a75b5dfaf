// SPDX-License-Identifier: Apache-2.0
// Which sources (sources: of a step) tasks were made with. The tables grow with changes of these, not with
// tasks.
#include "base/clock.h"
#include "engine/store/impl.h"

namespace wflow::engine::store {

std::vector<SourcesRow> Store::sources() {
  return impl_->reading([&] {
    std::vector<SourcesRow> rows;
    auto& select = impl_->statement("SELECT id, step, time, study, files FROM sources ORDER BY id");
    while (select.executeStep()) {
      rows.push_back(
          {select.getColumn(0).getInt64(), select.getColumn(1).getString(), select.getColumn(2).getDouble(),
           static_cast<std::uint64_t>(select.getColumn(3).getInt64()), select.getColumn(4).getString()});
    }
    return rows;
  });
}

std::vector<MadeRow> Store::made() {
  return impl_->reading([&] {
    std::vector<MadeRow> rows;
    impl_->made.for_each([&](ArrayId array, Range range, std::int64_t sources) {
      rows.push_back({array, range, sources});
    });
    return rows;
  });
}

std::int64_t Store::add_sources(const SourcesRow& row) {
  std::int64_t id = 0;
  impl_->writing([&] { id = impl_->insert_sources(row); });
  return id;
}

std::int64_t Store::Impl::insert_sources(const SourcesRow& row) {
  execute(statement("INSERT INTO sources (step, time, study, files) VALUES (?, ?, ?, ?)"), row.step,
          stored_time(row.time_s), signed_of(row.study), row.files);
  return database.getLastInsertRowid();
}

void Store::set_sources(ArrayId array, std::int64_t sources) {
  impl_->sources_of[array] = sources;
}

// Nearly always none are there.
bool Store::Impl::has_made() {
  auto& select = statement("SELECT 1 FROM made LIMIT 1");
  const bool some = select.executeStep();
  select.reset();
  return some;
}

}  // namespace wflow::engine::store
