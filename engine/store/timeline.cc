// SPDX-License-Identifier: Apache-2.0
// When what happened: ends of tasks, metrics, checkpoints.
#include <algorithm>
#include <cmath>
#include <variant>

#include "engine/store/impl.h"
#include "engine/store/store.h"

namespace wflow::engine::store {

namespace {

std::uint64_t count_at(SQLite::Statement& row, int column) {
  return static_cast<std::uint64_t>(row.getColumn(column).getInt64());
}

std::size_t slice_of(const Timeline& timeline, double time_s, std::size_t slices) {
  const double length_s = timeline.end_s - timeline.begin_s;
  const double share = length_s > 0 ? (time_s - timeline.begin_s) / length_s : 0;
  const double slice = std::clamp(share, 0.0, 1.0) * static_cast<double>(slices);
  return std::min(static_cast<std::size_t>(slice), slices - 1);
}

}  // namespace

std::vector<wire::CheckpointView> Store::checkpoints() {
  return impl_->reading([&] {
    auto& select = impl_->statement(
        "SELECT array, element, time, body FROM events WHERE id IN (SELECT max(id) FROM events WHERE type = "
        "'checkpoint' AND array >= 0 GROUP BY array, element ORDER BY 1 DESC LIMIT ?) ORDER BY array, "
        "element");
    SQLite::bind(select, static_cast<std::int64_t>(kListedCheckpoints));
    std::vector<wire::CheckpointView> views;
    while (select.executeStep()) {
      const auto line = wire::parse_event_line(select.getColumn(3).getString());
      const auto* body = line ? std::get_if<wire::EventBody>(&*line) : nullptr;
      const auto* checkpoint = body != nullptr ? std::get_if<wire::Checkpoint>(body) : nullptr;
      if (checkpoint == nullptr) continue;
      views.push_back({select.getColumn(0).getUInt(), count_at(select, 1), checkpoint->epoch,
                       checkpoint->step, select.getColumn(2).getDouble(), checkpoint->path});
    }
    return views;
  });
}

Timeline Store::timeline(std::size_t slices) {
  return impl_->reading([&] {
    Timeline timeline;
    slices = std::max<std::size_t>(slices, 1);
    SQLite::Statement span(impl_->database,
                           "SELECT COALESCE(min(time), 0), COALESCE(max(time), 0) FROM history");
    if (span.executeStep()) {
      timeline.begin_s = span.getColumn(0).getDouble();
      timeline.end_s = span.getColumn(1).getDouble();
    }
    SQLite::Statement blocks(
        impl_->database, "SELECT u.array, a.step, u.body FROM task_usage u JOIN arrays a ON a.id = u.array");
    while (blocks.executeStep()) {
      std::vector<double>& ended = timeline.ended[blocks.getColumn(1).getString()];
      ended.resize(slices);
      const SQLite::Column body = blocks.getColumn(2);
      const std::string_view bytes(static_cast<const char*>(body.getBlob()),
                                   static_cast<std::size_t>(body.getBytes()));
      for (const UsageBlock::Record& record : UsageBlock::read(blocks.getColumn(0).getUInt(), bytes)) {
        const TaskUsage& used = record.usage;
        ended[slice_of(timeline, used.started_s + used.duration_s, slices)] +=
            static_cast<double>(used.count);
      }
    }
    SQLite::Statement reports(
        impl_->database,
        "SELECT array, element, step, min(time) FROM metrics WHERE array >= 0 GROUP BY array, element, step "
        "ORDER BY 4");
    while (reports.executeStep()) {
      timeline.reports[{reports.getColumn(0).getUInt(), count_at(reports, 1)}].push_back(
          {reports.getColumn(3).getDouble(), count_at(reports, 2)});
    }
    return timeline;
  });
}

}  // namespace wflow::engine::store
