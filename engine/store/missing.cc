// SPDX-License-Identifier: Apache-2.0
// Samples that conversions could not use. A row each; they stay as long as the task that reported them is
// done. Skipped ones are counted in the event `converted` of their block instead: there may be millions.
#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "engine/store/impl.h"

namespace wflow::engine::store {

void Store::Impl::write_missing(const wire::TaskEvent& of, const wire::MissingSample& missing) {
  execute(
      statement(
          "INSERT OR REPLACE INTO missing (array, sample, element, attempt, reason) VALUES (?, ?, ?, ?, ?)"),
      of.array, signed_of(missing.sample), signed_of(of.element), of.attempt, missing.reason);
}

// Removes reports of earlier executions of the task that this one did not repeat.
void Store::Impl::write_converted(const wire::TaskEvent& of, const wire::Converted& converted) {
  execute(statement("DELETE FROM missing WHERE array = ? AND element = ? AND attempt <> ?"), of.array,
          signed_of(of.element), of.attempt);
  if (std::ranges::any_of(converted.missing, is_skipped)) write_other(of);
}

// The last report of a block counts, and only while its task is done and the sample is skipped: both may have
// run since.
void Store::Impl::add_skipped(MissingSamples& missing) {
  std::map<std::pair<ArrayId, Element>, MissingReason> skipped;
  SQLite::Statement select(
      database,
      "SELECT e.array, e.element, a.source, e.body FROM events e JOIN arrays a ON a.id = "
      "e.array WHERE e.type = 'converted' AND a.source IS NOT NULL ORDER BY e.id");
  const auto is = [this](ArrayId array, Element element, ElementState state) {
    return runs.find(array, element) == static_cast<std::int64_t>(state);
  };
  while (select.executeStep()) {
    const ArrayId array = select.getColumn(0).getUInt(), source = select.getColumn(2).getUInt();
    const auto block = static_cast<Element>(select.getColumn(1).getInt64());
    const auto line = wire::parse_event_line(select.getColumn(3).getString());
    const auto* event = line ? std::get_if<wire::EventBody>(&*line) : nullptr;
    const auto* converted = event ? std::get_if<wire::Converted>(event) : nullptr;
    if (converted == nullptr || !is(array, block, ElementState::done)) continue;
    for (const MissingReason& reason : converted->missing) {
      if (is_skipped(reason) && is(source, reason.first, ElementState::skipped))
        skipped.insert_or_assign({array, block}, reason);
    }
  }
  for (const auto& [at, reason] : skipped) missing.add(at.first, at.second, reason);
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
    impl_->add_skipped(missing);
    return missing;
  });
}

}  // namespace wflow::engine::store
