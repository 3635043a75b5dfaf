// SPDX-License-Identifier: Apache-2.0
// Samples that conversions could not use. A row each; they stay as long as the task that reported them is
// done.
#include "engine/store/impl.h"

namespace wflow::engine::store {

void Store::Impl::write_missing(const wire::TaskEvent& of, const wire::MissingSample& missing) {
  execute(
      statement(
          "INSERT OR REPLACE INTO missing (array, sample, element, attempt, reason) VALUES (?, ?, ?, ?, ?)"),
      of.array, signed_of(missing.sample), signed_of(of.element), of.attempt, missing.reason);
}

// Removes reports of earlier executions of the task that this one did not repeat.
void Store::Impl::write_converted(const wire::TaskEvent& of) {
  execute(statement("DELETE FROM missing WHERE array = ? AND element = ? AND attempt <> ?"), of.array,
          signed_of(of.element), of.attempt);
}

// For conversions alone: a retry may open a million other tasks.
void Store::Impl::forget_missing(ArrayId array, const std::vector<Range>& reopened) {
  if (!conversions) {
    conversions.emplace();
    SQLite::Statement select(database, "SELECT id FROM arrays WHERE source IS NOT NULL");
    while (select.executeStep()) conversions->insert(select.getColumn(0).getUInt());
  }
  if (!conversions->contains(array)) return;
  for (const Range& part : reopened) {
    execute(statement("DELETE FROM missing WHERE array = ? AND element BETWEEN ? AND ?"), array,
            signed_of(part.first), signed_of(part.last));
  }
}

std::vector<MissingRecord> Store::missing(ArrayId array, Range samples, std::size_t limit) {
  return impl_->reading([&] {
    SQLite::Statement& select = impl_->statement(
        "SELECT sample, element, reason FROM missing WHERE array = ? AND sample BETWEEN ? AND ? ORDER BY "
        "sample LIMIT ?");
    SQLite::bind(select, array, signed_of(samples.first), signed_of(samples.last), signed_of(limit));
    std::vector<MissingRecord> records;
    while (select.executeStep()) {
      records.push_back({static_cast<Element>(select.getColumn(0).getInt64()),
                         static_cast<Element>(select.getColumn(1).getInt64()),
                         select.getColumn(2).getString()});
    }
    select.reset();
    return records;
  });
}

MissingSamples Store::missing_samples() {
  return impl_->reading([&] {
    MissingSamples missing;
    SQLite::Statement select(
        impl_->database,
        "SELECT array, element, reason, count(*), min(sample) FROM missing GROUP BY array, "
        "element, reason ORDER BY array, element, count(*) DESC");
    while (select.executeStep()) {
      missing.add(
          select.getColumn(0).getUInt(), static_cast<Element>(select.getColumn(1).getInt64()),
          {select.getColumn(2).getString(), static_cast<std::uint64_t>(select.getColumn(3).getInt64()),
           static_cast<std::uint64_t>(select.getColumn(4).getInt64())});
    }
    return missing;
  });
}

}  // namespace wflow::engine::store
